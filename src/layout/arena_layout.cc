#include "layout/arena_layout.hpp"

#include "base/checked.hpp"
#include "base/error.hpp"
#include "layout/control_block.hpp"
#include "layout/layout_builder.hpp"

namespace ferry::layout {

namespace {

DeliverySlot make_delivery_slot(const ArenaShape& shape) {
  LayoutBuilder ranges;
  const std::int64_t rows = shape.delivery_rows;
  const auto take = [&](std::int64_t bytes_per_row) {
    return ranges.take(checked_multiply("delivery bytes", rows, bytes_per_row));
  };
  DeliverySlot slot;
  slot.rows = take(shape.max_row_bytes);
  // Column-major scales are padded to a multiple of four rows per expert.
  slot.scales = ranges.take(checked_multiply(
      "scale bytes", rows + 4 * std::int64_t{shape.num_experts} + 4, shape.max_scale_bytes));
  if (shape.is_gpu) slot.scales_scratch = take(shape.max_scale_bytes);
  slot.topk_idx = take(shape.top_k * 8);
  slot.weights = take(shape.top_k * 4);
  slot.row_source = take(2 * 4);
  slot.row_expert = take(4);
  if (shape.is_gpu) slot.copy_of = take(4);
  slot.counts = ranges.take(8 * (3 + 3 * std::int64_t{shape.num_experts} + shape.num_ranks));
  slot.bytes = ranges.bytes();
  return slot;
}

LowLatencyRecord make_low_latency_record(const ArenaShape& shape) {
  LayoutBuilder ranges;
  LowLatencyRecord record;
  record.row = ranges.take(shape.max_row_bytes, 64);
  record.scales = ranges.take(shape.max_scale_bytes, 16);
  record.topk_idx = ranges.take(shape.top_k * 4, 16);
  record.weights = ranges.take(shape.top_k * 4, 16);
  record.source = ranges.take(8, 8);
  record.bytes = ranges.bytes(64);
  return record;
}

GpuGateLayout make_gpu_gate(const ArenaShape& shape, LayoutBuilder& ranges) {
  const std::int64_t num_ranks = shape.num_ranks;
  GpuGateLayout gate;
  gate.slots = ranges.take(HeardSlot::kRing * num_ranks * std::int64_t{sizeof(HeardSlot)});
  gate.done = ranges.take(num_ranks * GpuGateLayout::kDoneWords * 8);
  gate.counts_pitch =
      LayoutBuilder::align_up(4 * (std::int64_t{shape.num_experts} + num_ranks), 128);
  gate.counts = ranges.take(HeardSlot::kRing * num_ranks * gate.counts_pitch);
  gate.error_text = ranges.take(HeardSlot::kRing * GpuGateLayout::kErrorTextBytes);
  return gate;
}

}  // namespace

std::int64_t staging_pitch(std::int64_t row_bytes, int num_row_weights) {
  return LayoutBuilder::align_up(row_bytes + 4 * std::int64_t{num_row_weights}, 64);
}

ArenaLayout make_arena_layout(const ArenaShape& shape) {
  LayoutBuilder ranges;
  ArenaLayout layout;
  layout.control = ranges.take(sizeof(ControlBlock));
  layout.counts_pitch =
      LayoutBuilder::align_up(4 * (std::int64_t{shape.num_experts} + shape.num_ranks), 64);
  layout.counts = ranges.take(ControlBlock::kRing * layout.counts_pitch);
  if (shape.is_gpu) layout.gpu_gate = make_gpu_gate(shape, ranges);

  layout.delivery = make_delivery_slot(shape);
  for (std::int64_t& offset : layout.deliveries) offset = ranges.take(layout.delivery.bytes);

  if (shape.is_gpu) {
    layout.staging_bytes =
        checked_multiply("staging bytes", shape.delivery_rows, shape.max_row_bytes);
    if (shape.memory_limit > 0 && layout.staging_bytes > shape.memory_limit)
      layout.staging_bytes = shape.memory_limit;
    const std::int64_t area = ranges.take(layout.staging_bytes);
    for (std::int64_t& offset : layout.staging) offset = area;
  } else {
    const std::int64_t pitch = staging_pitch(shape.max_sum_row_bytes, shape.top_k);
    layout.staging_bytes =
        checked_multiply("staging bytes", shape.max_tokens * shape.slots_per_token, pitch);
    if (shape.memory_limit > 0 && layout.staging_bytes > shape.memory_limit)
      layout.staging_bytes = shape.memory_limit;
    for (std::int64_t& offset : layout.staging) offset = ranges.take(layout.staging_bytes);
  }

  layout.weights_scratch_bytes =
      checked_multiply("weight bytes", shape.delivery_rows, std::int64_t{shape.top_k} * 4);
  layout.weights_scratch = ranges.take(layout.weights_scratch_bytes);

  layout.ll_record = make_low_latency_record(shape);
  if (shape.is_low_latency) {
    layout.ll_dispatch_bytes = checked_multiply(
        "low-latency bytes", shape.num_ranks * shape.max_tokens, layout.ll_record.bytes);
    layout.ll_dispatch = ranges.take(ArenaLayout::kLowLatencyBuffers * layout.ll_dispatch_bytes);
    layout.ll_combine_bytes = shape.max_tokens * shape.slots_per_token *
                              staging_pitch(shape.max_sum_row_bytes, shape.top_k);
  }

  layout.heap_bytes = LayoutBuilder::align_up(shape.heap_bytes, LayoutBuilder::kPage);
  layout.heap = ranges.take(layout.heap_bytes);
  layout.total_bytes = ranges.bytes();
  // Room for many arenas in one 47-bit address space.
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 45;
  FERRY_CHECK(layout.total_bytes > 0 && layout.total_bytes <= kMostBytes,
              ErrorCode::kInvalidArgument,
              "one arena would need {} bytes of address space, at most {} are possible; try: a "
              "smaller max_tokens or max_recv_rows",
              layout.total_bytes, kMostBytes);
  return layout;
}

}  // namespace ferry::layout
