#include "layout/arena_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "layout/control_block.hpp"

namespace ferry::layout {
namespace {

ArenaShape shape_of(std::int64_t max_tokens, bool is_low_latency) {
  ArenaShape shape;
  shape.num_ranks = 8;
  shape.num_experts = 256;
  shape.top_k = 8;
  shape.max_tokens = max_tokens;
  shape.max_row_bytes = 14336;
  shape.max_sum_row_bytes = 4 * 7168;
  shape.max_scale_bytes = 224;
  shape.delivery_rows = 8 * max_tokens;
  shape.slots_per_token = 8;
  shape.heap_bytes = 1 << 20;
  shape.is_low_latency = is_low_latency;
  return shape;
}

TEST(ArenaLayout, HasRangesThatDoNotOverlap) {
  for (const bool is_low_latency : {false, true}) {
    const ArenaLayout layout = make_arena_layout(shape_of(128, is_low_latency));
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {
        {layout.control, sizeof(ControlBlock)},
        {layout.counts, ControlBlock::kRing * layout.counts_pitch},
        {layout.weights_scratch, layout.weights_scratch_bytes},
        {layout.heap, layout.heap_bytes}};
    for (const std::int64_t offset : layout.deliveries)
      ranges.emplace_back(offset, layout.delivery.bytes);
    for (const std::int64_t offset : layout.staging)
      ranges.emplace_back(offset, layout.staging_bytes);
    if (is_low_latency)
      ranges.emplace_back(layout.ll_dispatch,
                          ArenaLayout::kLowLatencyBuffers * layout.ll_dispatch_bytes);
    std::sort(ranges.begin(), ranges.end());

    for (std::size_t i = 1; i < ranges.size(); ++i)
      EXPECT_LE(ranges[i - 1].first + ranges[i - 1].second, ranges[i].first);
    EXPECT_LE(ranges.back().first + ranges.back().second, layout.total_bytes);
  }
}

TEST(ArenaLayout, HoldsTheWorstDeliveryInEachSlot) {
  const ArenaShape shape = shape_of(4096, false);

  const DeliverySlot slot = make_arena_layout(shape).delivery;

  EXPECT_GE(slot.scales - slot.rows, shape.delivery_rows * shape.max_row_bytes);
  EXPECT_GE(slot.topk_idx - slot.scales, shape.delivery_rows * shape.max_scale_bytes);
  EXPECT_GE(slot.weights - slot.topk_idx, shape.delivery_rows * shape.top_k * 8);
  EXPECT_GE(slot.row_source - slot.weights, shape.delivery_rows * shape.top_k * 4);
  EXPECT_GE(slot.row_expert - slot.row_source, shape.delivery_rows * 8);
  EXPECT_GE(slot.bytes - slot.counts, 8 * (1 + 256 + 256 + 257 + 9));
}

TEST(ArenaLayout, PutsAGpusGatesBeforeItsDeliveriesWithoutOverlap) {
  ArenaShape shape = shape_of(128, false);
  shape.is_gpu = true;
  const ArenaLayout layout = make_arena_layout(shape);
  const GpuGateLayout& gate = layout.gpu_gate;

  const std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {
      {gate.slots, HeardSlot::kRing * 8 * std::int64_t{sizeof(HeardSlot)}},
      {gate.done, 8 * GpuGateLayout::kDoneWords * 8},
      {gate.counts, HeardSlot::kRing * 8 * gate.counts_pitch},
      {gate.error_text, HeardSlot::kRing * GpuGateLayout::kErrorTextBytes},
      {layout.deliveries[0], layout.delivery.bytes}};
  for (std::size_t i = 0; i + 1 < ranges.size(); ++i)
    EXPECT_LE(ranges[i].first + ranges[i].second, ranges[i + 1].first) << i;
  EXPECT_GE(gate.counts_pitch, 4 * (256 + 8));
  EXPECT_LT(layout.delivery.scales, layout.delivery.scales_scratch);
}

TEST(ArenaLayout, KeepsOneStagingAreaOnAGpu) {
  ArenaShape shape = shape_of(128, false);
  shape.is_gpu = true;
  const ArenaLayout layout = make_arena_layout(shape);

  EXPECT_EQ(layout.staging[0], layout.staging[2]);
  EXPECT_EQ(layout.staging_bytes, shape.delivery_rows * shape.max_row_bytes);
}

TEST(ArenaLayout, KeepsOffsetsBeyondFourGibibytes) {
  const ArenaLayout layout = make_arena_layout(shape_of(std::int64_t{1} << 20, false));

  EXPECT_GT(layout.deliveries[1], std::int64_t{1} << 36);
  EXPECT_GT(layout.deliveries[2], layout.deliveries[1]);
}

TEST(ArenaLayout, CutsStagingToTheMemoryLimit) {
  ArenaShape shape = shape_of(4096, false);
  shape.memory_limit = 1 << 20;

  EXPECT_EQ(make_arena_layout(shape).staging_bytes, 1 << 20);
}

TEST(ArenaLayout, RefusesMoreThanAnAddressSpaceHolds) {
  EXPECT_THROW((void)make_arena_layout(shape_of(std::int64_t{1} << 40, false)), Error);
  EXPECT_THROW((void)make_arena_layout(shape_of(std::int64_t{1} << 30, false)), Error);
}

TEST(ArenaLayout, PlacesStagedWeightsBehindTheRow) {
  EXPECT_EQ(staging_pitch(64, 0), 64);
  EXPECT_EQ(staging_pitch(64, 1), 128);
  EXPECT_EQ(staging_pitch(14336, 8), 14400);
}

}  // namespace
}  // namespace ferry::layout
