#pragma once

#include <cstdint>
#include <memory>

#include "bench/batch.hpp"
#include "bench/bench_device.hpp"

namespace ferry::bench {

// One rank's inputs and its combined output, in memory of the device that is the rank's own.
class Inputs {
 public:
  Inputs(BenchDevice& device, const Batch& batch, int rank);

  [[nodiscard]] TensorView x() const { return dense(x_, DType::kBf16, hidden_); }
  [[nodiscard]] TensorView out() const { return dense(out_, DType::kBf16, hidden_); }
  [[nodiscard]] TensorView topk_idx() const { return dense(ids_, DType::kInt64, top_k_); }
  [[nodiscard]] TensorView topk_weights() const { return dense(weights_, DType::kFp32, top_k_); }

 private:
  [[nodiscard]] TensorView dense(const std::shared_ptr<void>& memory,
                                 DType dtype,
                                 std::int64_t width) const {
    return TensorView::dense(memory.get(), dtype, {num_tokens_, width}, device_);
  }

  Device device_;
  std::int64_t num_tokens_;
  std::int64_t top_k_;
  std::int64_t hidden_;
  std::shared_ptr<void> x_;
  std::shared_ptr<void> out_;
  std::shared_ptr<void> ids_;
  std::shared_ptr<void> weights_;
};

}  // namespace ferry::bench
