#include "contract/cpu_engine.hpp"

#include <cstring>
#include <deque>

namespace ferry::contract {
namespace {

class HostMemory : public EngineMemory {
 public:
  TensorView place(const support::HostTensor& tensor) override {
    tensors_.push_back(tensor);
    return tensors_.back().view();
  }
  support::HostTensor fetch(const TensorView& view) const override {
    return support::HostTensor::copy_of(view);
  }
  support::HostTensor fetch_dense(const TensorView& view) const override {
    support::HostTensor copy(view.dtype, {view.shape, view.shape + view.num_dims});
    if (!copy.bytes().empty()) std::memcpy(copy.bytes().data(), view.data, copy.bytes().size());
    return copy;
  }
  void release() override { tensors_.clear(); }
  void overwrite(const TensorView& view, const support::HostTensor& tensor) override {
    if (!tensor.bytes().empty())
      std::memcpy(view.data, tensor.bytes().data(), tensor.bytes().size());
  }

 private:
  std::deque<support::HostTensor> tensors_;  // a deque: views stay valid as it grows
};

EngineUnderTest cpu_engine(std::string name, Mode mode, Sizing sizing) {
  return {.name = std::move(name),
          .mode = mode,
          .sizing = sizing,
          .device = [](int) { return Device::cpu(); },
          .make_memory = [](int) { return std::make_unique<HostMemory>(); }};
}

}  // namespace

std::vector<EngineUnderTest> cpu_engines() {
  return {cpu_engine("CpuHtExact", Mode::kHighThroughput, Sizing::kExact),
          cpu_engine("CpuHtWorstCase", Mode::kHighThroughput, Sizing::kWorstCase),
          cpu_engine("CpuLlExact", Mode::kLowLatency, Sizing::kExact),
          cpu_engine("CpuLlWorstCase", Mode::kLowLatency, Sizing::kWorstCase)};
}

}  // namespace ferry::contract
