#pragma once

#include <utility>
#include <vector>

#include "ferry/exchange.hpp"
#include "support/host_tensor.hpp"

// The arithmetic of docs/architecture.md, Numbers, element by element, written apart from the
// engines.

namespace ferry::contract {

// One token's sum: fp32, in the order of the calls, rounded once to nearest even.
class ReferenceSum {
 public:
  ReferenceSum(DType dtype, std::int64_t hidden);
  void start_from(const std::byte* bias);  // else from +0
  void add(const std::byte* row);
  void add_weighted(const std::byte* row, float weight);
  void round_to(std::byte* out) const;

 private:
  [[nodiscard]] float value(const std::byte* row, std::size_t index) const;

  DType dtype_;
  std::vector<float> sum_;
};

// round(weight * row), element by element.
[[nodiscard]] support::HostTensor reference_scale(const support::HostTensor& row, float weight);

// Rows of bf16 as fp8 e4m3 with scales.
[[nodiscard]] std::pair<support::HostTensor, support::HostTensor> reference_quantize(
    Quantize quantize, const support::HostTensor& rows);

}  // namespace ferry::contract
