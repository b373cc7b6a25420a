#pragma once

#include <cstdint>
#include <span>

#include "ferry/tensor.hpp"

namespace ferry::cpu {

// out = round(bias + second_bias + sum of rows, in the order given): fp32, acc starts at the bias
// (else +0), acc = acc + row or acc + (weight * row), never fused, one round to nearest even; NaN
// results are canonical. bf16, fp16 and fp32.
struct SumArgs {
  DType dtype = DType::kBf16;
  std::int64_t hidden = 0;
  void* out = nullptr;
  std::span<const void* const> rows;
  const float* weights = nullptr;     // [rows.size()], or null: unweighted
  const void* bias = nullptr;         // [hidden] of dtype, or null
  const void* second_bias = nullptr;  // likewise
  // Past the cache: only where can_stream() holds, and visible to others only after stream_fence().
  bool is_streamed = false;
};
void sum_rows(const SumArgs& args) noexcept;

// Whether rows at `start`, `pitch` bytes apart, consist of whole aligned cache lines.
[[nodiscard]] bool can_stream(const void* start,
                              std::int64_t pitch,
                              std::int64_t row_bytes) noexcept;

// out = round(weight * row); bf16, fp16, fp32.
void scale_row(DType dtype, void* out, const void* row, float weight, std::int64_t hidden) noexcept;

}  // namespace ferry::cpu
