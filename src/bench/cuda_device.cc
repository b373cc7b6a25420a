#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/human.hpp"
#include "bench/bench_device.hpp"
#include "cuda/plugin.hpp"

namespace ferry::bench {

namespace {

constexpr int kStartMark = 0;
constexpr int kStopMark = 1;
// Together far beyond the last-level cache of any GPU.
constexpr std::int64_t kCeilingBytes = std::int64_t{512} << 20;
constexpr int kCeilingRepeats = 5;

class CudaDevice final : public BenchDevice, private DeviceGraphs {
 public:
  CudaDevice(const cuda::Plugin& plugin, int index, int num_devices)
      : tools_(plugin.open_device(index)),
        index_(index),
        num_devices_(num_devices),
        stream_(tools_->make_stream()) {}
  ~CudaDevice() override { tools_->destroy_stream(stream_); }

  [[nodiscard]] Device device() const noexcept override { return Device::cuda(index_); }
  [[nodiscard]] StreamRef stream() const noexcept override { return stream_; }
  [[nodiscard]] std::string name() const override { return tools_->name(); }
  [[nodiscard]] int num_devices() const noexcept override { return num_devices_; }

  [[nodiscard]] std::shared_ptr<void> allocate(std::int64_t bytes) override {
    const auto release = [tools = tools_.get()](void* pointer) { tools->release(pointer); };
    return {tools_->allocate(std::max<std::int64_t>(bytes, 1)), release};
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) tools_->copy(to, from, bytes, stream_);
  }
  void fill(void* to, unsigned char value, std::int64_t bytes) override {
    if (bytes > 0) tools_->fill(to, value, bytes, stream_);
  }
  void synchronize() override { tools_->synchronize(stream_); }

  void start_clock() override { tools_->mark(kStartMark, stream_); }
  [[nodiscard]] std::int64_t stop_clock_ns() override {
    tools_->mark(kStopMark, stream_);
    return std::llround(1e3 * tools_->elapsed_us(kStartMark, kStopMark));
  }

  [[nodiscard]] bool runs_ahead() const noexcept override { return true; }
  [[nodiscard]] DeviceGraphs* graphs() noexcept override { return this; }

  [[nodiscard]] int capture(const std::function<void()>& enqueue) override {
    tools_->begin_capture(stream_);
    enqueue();
    return tools_->end_capture(stream_);
  }
  void replay(int graph) override { tools_->replay(graph, stream_); }

  // What one copy by the driver's own means reaches; every byte is read once and written once.
  [[nodiscard]] Ceiling measure_ceiling(std::int64_t /*row_bytes*/) override {
    const std::int64_t free = tools_->free_bytes();
    FERRY_CHECK(free >= 2 * kCeilingBytes, ErrorCode::kNoResource,
                "the copy ceiling needs {} ({} bytes) of {}, {} are free; try: --no-ceiling",
                human_bytes(2 * kCeilingBytes), 2 * kCeilingBytes, name(), human_bytes(free));
    const std::shared_ptr<void> from = allocate(kCeilingBytes);
    const std::shared_ptr<void> to = allocate(kCeilingBytes);
    fill(from.get(), 1, kCeilingBytes);
    fill(to.get(), 1, kCeilingBytes);
    std::int64_t best_ns = 0;
    for (int i = 0; i < kCeilingRepeats; ++i) {
      const std::int64_t ns = time_ns(
          *this, [&] { tools_->copy_on_device(to.get(), from.get(), kCeilingBytes, stream_); });
      best_ns = best_ns == 0 ? ns : std::min(best_ns, ns);
    }
    Ceiling ceiling;
    ceiling.gbs = 2.0 * static_cast<double>(kCeilingBytes) / static_cast<double>(best_ns);
    ceiling.kind = "device copy";
    ceiling.buffer_bytes = kCeilingBytes;
    return ceiling;
  }

 private:
  std::unique_ptr<cuda::DeviceTools> tools_;
  int index_;
  int num_devices_;
  StreamRef stream_;
};

}  // namespace

std::unique_ptr<BenchDevice> open_cuda_device(int rank) {
  const cuda::Plugin& plugin = cuda::load_plugin();
  const int num_devices = plugin.num_devices();
  FERRY_CHECK(num_devices > 0, ErrorCode::kUnavailable, "rank {} finds no GPU; try: nvidia-smi",
              rank);
  return std::make_unique<CudaDevice>(plugin, rank % num_devices, num_devices);
}

std::unique_ptr<BenchDevice> open_bench_device(const BenchOptions& options, int rank) {
  return is_cuda(options) ? open_cuda_device(rank) : make_host_device();
}

}  // namespace ferry::bench
