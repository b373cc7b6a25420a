#pragma once

#include <vector>

#include "ferry/exchange.hpp"

namespace ferry::bench {

// What one dispatch left on one rank, as views; tests make their own.
struct DeliverySnapshot {
  TensorView tokens;
  TensorView scales;        // not given without quantisation
  TensorView topk_idx;      // kByRank only
  TensorView topk_weights;  // not given where no weights were sent
  TensorView row_source;
  TensorView row_expert;  // not kByRank
  TensorView num_rows;
  TensorView expert_counts;
  TensorView expert_offsets;
  TensorView source_offsets;  // kByRank only
};
[[nodiscard]] DeliverySnapshot snapshot(const Delivery& delivery, Layout layout);

// What it holds row by row; some may not be given.
[[nodiscard]] std::vector<TensorView> row_tensors(const DeliverySnapshot& seen);

}  // namespace ferry::bench
