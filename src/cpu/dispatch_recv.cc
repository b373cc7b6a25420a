// Dispatch, the receiving half. Phases: (1) closing gate: the rows of every source are here; (2)
// what only the receiver knows: experts of rows, ids of unused rows, gaps, counts; (3) scales
// transposed and outputs outside the arena copied.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/copy.hpp"
#include "cpu/engine.hpp"
#include "cpu/row_source.hpp"

namespace ferry::cpu {

namespace {

void zero(std::byte* start, std::int64_t bytes) {
  std::memset(start, 0, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)));
}

// Calls visit(first, end) for the rows of the outputs that hold no data.
template <typename Visit>
void for_each_gap(const RouteState& route, const Visit& visit) {
  std::int64_t row = 0;
  for_each_filled_run(route, [&](std::int64_t first, std::int64_t num_rows) {
    if (first > row) visit(row, first);
    row = first + num_rows;
  });
  if (row < route.num_output_rows()) visit(row, route.num_output_rows());
}

}  // namespace

std::byte* Engine::rows_of(const DispatchOperation& dispatch) const {
  return dispatch.direct_offset ? arena_.base() + *dispatch.direct_offset
                                : delivery_part(dispatch.slot, layout_.delivery.rows);
}

void Engine::receive_chunk(DispatchOperation& dispatch, std::int64_t chunk) {
  const RouteState& route = *dispatch.route;
  std::vector<int> sources;
  for (int source = 0; source < num_ranks(); ++source)
    if (route.receive.rows_from_rank[static_cast<std::size_t>(source)] > 0)
      sources.push_back(source);
  gate_.wait(Word::kMoved, dispatch.sequence, dispatch.sequence, sources);
  if (dispatch.staged_out == nullptr) return;

  // One window of rows from staging to the caller's memory; gaps are left alone.
  const std::int64_t first = chunk * dispatch.rows_per_chunk;
  const std::int64_t end = first + dispatch.rows_per_chunk;
  const std::byte* window = delivery_part(dispatch.slot, layout_.delivery.rows);
  std::int64_t num_copied = 0;
  for_each_filled_run(route, [&](std::int64_t run_first, std::int64_t num_rows) {
    const std::int64_t from = std::max(run_first, first);
    const std::int64_t to = std::min(run_first + num_rows, end);
    if (from >= to) return;
    pool_.parallel_for(to - from, 32, [&](std::int64_t a, std::int64_t b, int) {
      stream_copy(dispatch.staged_out + (from + a) * dispatch.row_bytes,
                  window + (from + a - first) * dispatch.row_bytes,
                  static_cast<std::size_t>((b - a) * dispatch.row_bytes));
      stream_fence();
    });
    num_copied += to - from;
  });
  counters_.staged_bytes += num_copied * dispatch.row_bytes;
  dispatch.route->counters.staged_bytes += num_copied * dispatch.row_bytes;
}

void Engine::finish_dispatch(DispatchOperation& dispatch) {
  if (dispatch.is_finished) return;
  dispatch.is_finished = true;
  if (dispatch.is_low_latency) return finish_low_latency_dispatch(dispatch);
  receive_chunk(dispatch, dispatch.num_chunks - 1);
  complete_delivery(dispatch);
}

void Engine::complete_delivery(DispatchOperation& dispatch) {
  RouteState& route = *dispatch.route;
  fill_row_experts(dispatch);
  fill_unused_ids(dispatch);
  if (dispatch.gaps == Gaps::kZeroed) zero_gaps(dispatch);
  write_counts(dispatch);
  if (dispatch.num_scales > 0 && dispatch.scale_layout == ScaleLayout::kColumnMajor)
    transpose_scales(dispatch);
  copy_to_caller(dispatch);

  if (route.has_row_source) return;
  // Push combine needs to know where each row came from, also after this slot has been reused.
  route.row_source.resize(static_cast<std::size_t>(route.receive.num_rows) * 2);
  const std::byte* source = delivery_part(dispatch.slot, layout_.delivery.row_source);
  for_each_filled_run(route, [&](std::int64_t first, std::int64_t num_rows) {
    std::memcpy(route.row_source.data() + first * 2, source + first * 8,
                static_cast<std::size_t>(num_rows) * 8);
  });
  route.has_row_source = true;
}

void Engine::fill_row_experts(const DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  if (route.shape.layout == Layout::kByRank) return;
  auto* experts =
      reinterpret_cast<std::int32_t*>(delivery_part(dispatch.slot, layout_.delivery.row_expert));
  std::fill_n(experts, route.num_output_rows(), -1);
  const auto& receive = route.receive;
  for (std::size_t expert = 0; expert < receive.expert_counts.size(); ++expert)
    std::fill_n(experts + receive.expert_offsets[expert], receive.expert_counts[expert],
                static_cast<std::int32_t>(expert));
}

void Engine::fill_unused_ids(const DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  if (route.shape.layout != Layout::kByRank) return;
  const std::int64_t row_bytes = config_.top_k * (route.is_topk_int64 ? 8 : 4);
  std::byte* ids = delivery_part(dispatch.slot, layout_.delivery.topk_idx);
  const std::int64_t unused = route.num_output_rows() - route.receive.num_rows;
  // All bits set is -1 in either width.
  if (unused > 0)
    std::memset(ids + route.receive.num_rows * row_bytes, 0xFF,
                static_cast<std::size_t>(unused * row_bytes));
}

void Engine::zero_gaps(const DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  const layout::DeliverySlot& parts = layout_.delivery;
  const std::int64_t weight_bytes = route.shape.layout == Layout::kByRank ? config_.top_k * 4 : 4;
  std::byte* rows = dispatch.staged_out != nullptr ? dispatch.staged_out : rows_of(dispatch);
  for_each_gap(route, [&](std::int64_t first, std::int64_t end) {
    zero(rows + first * dispatch.row_bytes, (end - first) * dispatch.row_bytes);
    zero(delivery_part(dispatch.slot, parts.scales) + first * dispatch.scale_bytes(),
         (end - first) * dispatch.scale_bytes());
    if (dispatch.has_weights)
      zero(delivery_part(dispatch.slot, parts.weights) + first * weight_bytes,
           (end - first) * weight_bytes);
  });
}

// num_rows [1], expert counts [E_l], aligned ones [E_l], expert offsets [E_l + 1], source offsets
// [R + 1], all int64.
void Engine::write_counts(const DispatchOperation& dispatch) {
  const plan::ReceivePlan& receive = dispatch.route->receive;
  auto* out =
      reinterpret_cast<std::int64_t*>(delivery_part(dispatch.slot, layout_.delivery.counts));
  *out++ = receive.num_rows;
  out = std::copy(receive.expert_counts.begin(), receive.expert_counts.end(), out);
  out = std::copy(receive.aligned_expert_counts.begin(), receive.aligned_expert_counts.end(), out);
  out = std::copy(receive.expert_offsets.begin(), receive.expert_offsets.end(), out);
  std::copy(receive.source_offsets.begin(), receive.source_offsets.end(), out);
}

// Row-major [rows, S] to element (row, s) at s * pitch + row, pitch = rows aligned to 4; kPadded:
// each expert's block by itself.
void Engine::transpose_scales(const DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  const std::int64_t element = static_cast<std::int64_t>(dtype_bytes(dispatch.scale_dtype));
  const std::int64_t num_scales = dispatch.num_scales;
  std::byte* scales = delivery_part(dispatch.slot, layout_.delivery.scales);
  const bool is_padded = route.shape.layout == Layout::kPadded;
  const std::int64_t num_blocks =
      is_padded ? static_cast<std::int64_t>(route.receive.expert_counts.size()) : 1;
  const std::int64_t block_rows =
      num_blocks > 0 ? route.num_output_rows() / num_blocks : route.num_output_rows();
  const std::int64_t pitch = (block_rows + 3) / 4 * 4;
  std::vector<std::byte> block;
  // Backwards: a block grows by its padding, so it may overlap the rows of the one behind it.
  for (std::int64_t b = num_blocks - 1; b >= 0; --b) {
    const std::byte* from = scales + b * block_rows * num_scales * element;
    block.assign(from, from + block_rows * num_scales * element);
    std::byte* to = scales + b * pitch * num_scales * element;
    for (std::int64_t row = 0; row < block_rows; ++row)
      for (std::int64_t s = 0; s < num_scales; ++s)
        std::memcpy(to + (s * pitch + row) * element,
                    block.data() + (row * num_scales + s) * element,
                    static_cast<std::size_t>(element));
  }
}

void Engine::copy_to_caller(const DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  const layout::DeliverySlot& parts = layout_.delivery;
  const auto copy = [&](std::byte* out, std::int64_t part, std::int64_t bytes_per_row, bool whole) {
    if (out == nullptr) return;
    const std::byte* from = delivery_part(dispatch.slot, part);
    const auto copy_rows = [&](std::int64_t first, std::int64_t num_rows) {
      std::memcpy(out + first * bytes_per_row, from + first * bytes_per_row,
                  static_cast<std::size_t>(num_rows * bytes_per_row));
      counters_.staged_bytes += num_rows * bytes_per_row;
    };
    if (whole)
      copy_rows(0, route.num_output_rows());
    else
      for_each_filled_run(route, copy_rows);
  };
  const bool zeroed = dispatch.gaps == Gaps::kZeroed;
  copy(dispatch.scales_out, parts.scales, dispatch.scale_bytes(), zeroed);
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  copy(dispatch.topk_out, parts.topk_idx, config_.top_k * (route.is_topk_int64 ? 8 : 4), true);
  if (dispatch.has_weights)
    copy(dispatch.weights_out, parts.weights, is_by_rank ? config_.top_k * 4 : 4, zeroed);
}

void Engine::poison_delivery(int slot) {
#ifndef NDEBUG
  arena_.fill_reserved(layout_.deliveries[slot], layout_.delivery.bytes, 0xCB);
#else
  (void)slot;
#endif
}

}  // namespace ferry::cpu
