#include "bench/delivery_snapshot.hpp"

namespace ferry::bench {

DeliverySnapshot snapshot(const Delivery& delivery, Layout layout) {
  DeliverySnapshot seen;
  seen.tokens = delivery.tokens();
  seen.scales = delivery.scales();
  seen.topk_weights = delivery.topk_weights();
  seen.row_source = delivery.row_source();
  seen.num_rows = delivery.num_rows();
  seen.expert_counts = delivery.expert_counts();
  seen.expert_offsets = delivery.expert_offsets();
  if (layout == Layout::kByRank) {
    seen.topk_idx = delivery.topk_idx();
    seen.source_offsets = delivery.source_offsets();
  } else {
    seen.row_expert = delivery.row_expert();
  }
  return seen;
}

std::vector<TensorView> row_tensors(const DeliverySnapshot& seen) {
  return {seen.tokens,       seen.scales,     seen.topk_idx,
          seen.topk_weights, seen.row_source, seen.row_expert};
}

}  // namespace ferry::bench
