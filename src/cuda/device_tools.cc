#include "cuda/device_tools.hpp"

#include <cuda_runtime.h>

#include <map>
#include <thread>
#include <vector>

#include "cuda/check.hpp"
#include "cuda/driver.hpp"
#include "cuda/kernels.hpp"

namespace ferry::cuda {

namespace {

cudaStream_t handle_of(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }

class CudaTools final : public DeviceTools {
 public:
  explicit CudaTools(int index) : index_(index) {
    (void)driver();
    use();
    check(cudaGetDeviceProperties(&properties_, index_), "reading the GPU's properties");
    check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "making a stream");
  }
  CudaTools(const CudaTools&) = delete;
  CudaTools& operator=(const CudaTools&) = delete;
  ~CudaTools() override {
    cudaSetDevice(index_);
    for (const auto& [number, event] : marks_) cudaEventDestroy(event);
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(own_stream_);
  }

  std::string name() const override { return properties_.name; }
  int num_sms() const override { return properties_.multiProcessorCount; }
  std::int64_t free_bytes() const override {
    use();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "reading the free memory");
    return static_cast<std::int64_t>(free);
  }

  void* allocate(std::int64_t bytes) override {
    use();
    void* out = nullptr;
    check(cudaMallocAsync(&out, static_cast<std::size_t>(bytes), own_stream_),
          "taking device memory");
    check(cudaStreamSynchronize(own_stream_), "taking device memory");
    return out;
  }
  void release(void* pointer) noexcept override {
    cudaSetDevice(index_);
    cudaFreeAsync(pointer, own_stream_);
  }

  void copy(void* to, const void* from, std::int64_t bytes, StreamRef stream) override {
    // A copy of pageable memory holds the driver's lock until it is done. Behind a gate that waits
    // for another thread's rank, which needs that lock, it would wait for ever: so wait first,
    // without.
    synchronize(stream);
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                          handle_of(stream)),
          "copying");
    check(cudaStreamSynchronize(handle_of(stream)), "copying");
  }
  void fill(void* to, unsigned char value, std::int64_t bytes, StreamRef stream) override {
    use();
    check(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), handle_of(stream)),
          "filling");
  }
  void copy_on_device(void* to, const void* from, std::int64_t bytes, StreamRef stream) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          handle_of(stream)),
          "copying on the device");
  }
  void delay(std::chrono::microseconds time, StreamRef stream) override {
    use();
    check(launch_delay(static_cast<std::uint64_t>(time.count()) * 1000, handle_of(stream)),
          "delaying a stream");
  }

  StreamRef thread_stream() const override { return {cudaStreamPerThread}; }
  StreamRef make_stream() override {
    use();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return {stream};
  }
  void destroy_stream(StreamRef stream) noexcept override { cudaStreamDestroy(handle_of(stream)); }
  void synchronize(StreamRef stream) override {
    use();
    for (;;) {
      const cudaError_t status = cudaStreamQuery(handle_of(stream));
      if (status != cudaErrorNotReady) return check(status, "waiting for a stream");
      std::this_thread::yield();
    }
  }

  void mark(int number, StreamRef stream) override {
    use();
    cudaEvent_t& event = marks_[number];
    if (event == nullptr) check(cudaEventCreate(&event), "making an event");
    check(cudaEventRecord(event, handle_of(stream)), "marking time");
  }
  double elapsed_us(int from, int to) override {
    float ms = 0;
    check(cudaEventSynchronize(marks_.at(to)), "waiting for a mark");
    check(cudaEventElapsedTime(&ms, marks_.at(from), marks_.at(to)), "reading time");
    return 1000.0 * static_cast<double>(ms);
  }

  void begin_capture(StreamRef stream) override {
    use();
    check(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal),
          "beginning a capture");
  }
  int end_capture(StreamRef stream) override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(handle_of(stream), &graph), "ending a capture");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "making a graph");
    check(cudaGraphDestroy(graph), "making a graph");
    check(cudaGraphUpload(executable, handle_of(stream)), "uploading a graph");
    graphs_.push_back(executable);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph, StreamRef stream) override {
    check(cudaGraphLaunch(graphs_.at(static_cast<std::size_t>(graph)), handle_of(stream)),
          "replaying a graph");
  }

 private:
  void use() const { check(cudaSetDevice(index_), "choosing the GPU"); }

  int index_;
  cudaDeviceProp properties_{};
  cudaStream_t own_stream_ = nullptr;
  std::map<int, cudaEvent_t> marks_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

int num_devices() {
  (void)driver();
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  return count;
}

std::unique_ptr<DeviceTools> open_device_tools(int index) {
  return std::make_unique<CudaTools>(index);
}

}  // namespace ferry::cuda
