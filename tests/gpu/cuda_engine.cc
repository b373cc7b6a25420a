#include "gpu/cuda_engine.hpp"

#include <algorithm>
#include <vector>

#include "cuda/plugin.hpp"

namespace ferry::contract {
namespace {

int num_devices() {
  static const int count = cuda::load_plugin().num_devices();
  return count;
}

class DeviceMemory : public EngineMemory {
 public:
  explicit DeviceMemory(int index)
      : index_(index), tools_(cuda::load_plugin().open_device(index)) {}
  ~DeviceMemory() override { free_all(); }

  TensorView place(const support::HostTensor& tensor) override {
    TensorView view = tensor.view();
    const auto bytes = static_cast<std::int64_t>(tensor.bytes().size());
    view.device = Device::cuda(index_);
    view.data = nullptr;
    if (bytes == 0) return view;
    view.data = tools_->allocate(bytes);
    placed_.push_back(view.data);
    tools_->copy(view.data, tensor.bytes().data(), bytes, tools_->thread_stream());
    return view;
  }

  support::HostTensor fetch(const TensorView& view) const override {
    std::int64_t num_elements = view.num_elements() > 0 ? 1 : 0;
    for (int dim = 0; dim < view.num_dims && num_elements > 0; ++dim)
      num_elements += (view.shape[dim] - 1) * view.strides[dim];
    std::vector<std::byte> bytes(static_cast<std::size_t>(num_elements) * dtype_bytes(view.dtype));
    read(bytes, view.data);
    TensorView copy = view;
    copy.device = Device::cpu();
    copy.data = bytes.data();
    return support::HostTensor::copy_of(copy);
  }

  support::HostTensor fetch_dense(const TensorView& view) const override {
    support::HostTensor copy(view.dtype, {view.shape, view.shape + view.num_dims});
    read(copy.bytes(), view.data);
    return copy;
  }

  void settle() override { tools_->synchronize(tools_->thread_stream()); }
  void release() override { free_all(); }

  void overwrite(const TensorView& view, const support::HostTensor& tensor) override {
    const auto bytes = static_cast<std::int64_t>(tensor.bytes().size());
    if (bytes > 0) tools_->copy(view.data, tensor.bytes().data(), bytes, tools_->thread_stream());
  }

 private:
  // Behind everything that this thread has enqueued.
  void read(std::span<std::byte> to, const void* from) const {
    if (!to.empty())
      tools_->copy(to.data(), from, static_cast<std::int64_t>(to.size()), tools_->thread_stream());
  }

  void free_all() {
    if (!placed_.empty()) tools_->synchronize(tools_->thread_stream());
    for (void* pointer : placed_) tools_->release(pointer);
    placed_.clear();
  }

  int index_;
  std::unique_ptr<cuda::DeviceTools> tools_;
  std::vector<void*> placed_;
};

EngineUnderTest cuda_engine(std::string name, Mode mode, Sizing sizing) {
  return {
      .name = std::move(name),
      .mode = mode,
      .sizing = sizing,
      .device = [](int rank) { return Device::cuda(rank % num_devices()); },
      .has_chunks = false,
      .make_memory = [](int rank) { return std::make_unique<DeviceMemory>(rank % num_devices()); }};
}

}  // namespace

std::vector<EngineUnderTest> cuda_engines() {
  return {cuda_engine("CudaHtExact", Mode::kHighThroughput, Sizing::kExact),
          cuda_engine("CudaHtWorstCase", Mode::kHighThroughput, Sizing::kWorstCase),
          cuda_engine("CudaLlExact", Mode::kLowLatency, Sizing::kExact),
          cuda_engine("CudaLlWorstCase", Mode::kLowLatency, Sizing::kWorstCase)};
}

}  // namespace ferry::contract
