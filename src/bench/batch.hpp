#pragma once

#include <cstdint>
#include <span>

#include "bench/delivery_snapshot.hpp"
#include "bench/routing.hpp"
#include "ferry/exchange.hpp"

namespace ferry::bench {

// Everything that decides what is sent and what must arrive. Values are functions of their place:
// each rank can tell what every other rank sends.
struct Batch {
  RoutingTable routing;
  Layout layout = Layout::kByRank;
  Quantize quantize = Quantize::kNone;
  bool is_weighted = false;  // combine weighs its rows; weights are delivered always
  std::int64_t hidden = 0;
  std::uint64_t seed = 0;

  [[nodiscard]] int num_ranks() const { return static_cast<int>(routing.topk.size()); }
};

constexpr int kLargestValue = 8;

// x[token, :] of `rank`, as bf16: whole numbers from -8 to 8, exact in bf16 and in every product
// and sum of a bf16 exchange.
void fill_row(const Batch& batch, int rank, std::int64_t token, std::span<std::uint16_t> row);

// topk_weights[token, k] of `rank`; NaN where the token has no expert, since that is to be ignored.
[[nodiscard]] float weight_at(const Batch& batch, int rank, std::int64_t token, int k);

// What the pretended expert multiplies a row by. The layouts with one row per expert have one
// factor per expert, kByRank one per destination rank.
[[nodiscard]] float expert_factor(const Batch& batch, int rank, int expert);

// The pretended experts: y = round(delivered row * factor). Rows of
// fp8 are dequantised first. y may be the delivered tokens themselves (bf16).
void apply_experts(const Batch& batch,
                   int rank,
                   const DeliverySnapshot& delivery,
                   const TensorView& y);

}  // namespace ferry::bench
