// Dispatch on the host's side: what is granted, what is launched.
#include <algorithm>

#include "base/human.hpp"
#include "cuda/check.hpp"
#include "cuda/engine.hpp"

namespace ferry::cuda {

using layout::GateSlot;
using layout::Operation;

namespace {

Transform transform_of(const engine::DispatchOperation& dispatch) {
  if (dispatch.is_scaled_by_weights) return kScale;
  switch (dispatch.quantize) {
    case Quantize::kNone: return kCopy;
    case Quantize::kFp8: return kQuantizeFp32;
    case Quantize::kFp8Ue8m0: return kQuantizeUe8m0;
  }
  return kCopy;
}

MoveLaunch as_launch(const plan::LaunchSize& size) {
  return {size.num_blocks, size.num_warps, size.is_bulk ? 1 : 0,
          static_cast<int>(size.shared_bytes)};
}

bool is_transposed(const engine::DispatchOperation& dispatch) {
  return dispatch.num_scales > 0 && dispatch.scale_layout == ScaleLayout::kColumnMajor;
}

}  // namespace

std::byte* Engine::rows_of(const engine::DispatchOperation& dispatch) const {
  return dispatch.direct_offset ? arena_.base() + *dispatch.direct_offset
                                : delivery_part(dispatch.slot, layout_.delivery.rows);
}

void Engine::begin_dispatch(engine::DispatchOperation& dispatch) {
  const cudaStream_t stream = enter(dispatch.stream);
  const auto& route = static_cast<const DeviceRoute&>(*dispatch.route);
  const std::uint64_t sequence = ++sequence_;
  dispatch.sequence = sequence;
  if (!dispatch.error)
    dispatch.error = capture_error([&] { check_aligned("x", dispatch.x, dispatch.x_pitch); });
  // Along a route with an error nothing moves on any rank; whatever else is wrong follows from it.
  if (route.error) dispatch.error.reset();
  OpenGate gate = make_gate(shape_of(dispatch), dispatch.error, sequence, stream);
  if (route.error) dispatch.error = route.error;
  gate.route_error = route.view.has_error;
  const layout::DeliverySlot& parts = layout_.delivery;
  const auto slot = static_cast<std::uint64_t>(layout_.deliveries[dispatch.slot]);
  const auto grant = [&](GateSlot::Word word, std::int64_t part) {
    gate.slot.words[word] = slot + static_cast<std::uint64_t>(part);
  };
  grant(GateSlot::kRowsOffset, parts.rows);
  if (dispatch.direct_offset)
    gate.slot.words[GateSlot::kRowsOffset] = static_cast<std::uint64_t>(*dispatch.direct_offset);
  // Scales that are transposed arrive beside their place.
  grant(GateSlot::kScalesOffset, is_transposed(dispatch) ? parts.scales_scratch : parts.scales);
  grant(GateSlot::kTopkOffset, parts.topk_idx);
  grant(GateSlot::kWeightsOffset, parts.weights);
  grant(GateSlot::kSourceOffset, parts.row_source);
  grant(GateSlot::kCopyOffset, parts.copy_of);
  const DispatchView view = dispatch.error ? DispatchView{} : dispatch_view(dispatch, route);
  dispatch.is_low_latency = !dispatch.error && is_at_once(dispatch, view);
  if (dispatch.is_low_latency) {
    dispatch_at_once(dispatch, route, view, gate, stream);
  } else {
    check(launch_open_gate(view_, gate, stream), "opening a dispatch");
    if (!dispatch.error) enqueue_move(route, view, stream);
    // In one piece: finish says and waits at once.
    if (dispatch.is_split || dispatch.error)
      close(sequence, Operation::kDispatch, true, false, stream);
  }
  if (dispatch.error) throw_error(dispatch.error->code(), dispatch.error->what());
  dispatch.route->has_row_source = true;
}

DispatchView Engine::dispatch_view(const engine::DispatchOperation& dispatch,
                                   const DeviceRoute& route) const {
  DispatchView view{};
  view.x = dispatch.x;
  view.x_pitch = dispatch.x_pitch;
  view.row_bytes = dispatch.row_bytes;
  view.weights = dispatch.has_weights ? dispatch.weights : nullptr;
  view.weights_pitch = dispatch.weights_pitch;
  view.scales = dispatch.quantize == Quantize::kNone ? dispatch.scales : nullptr;
  view.scale_pitch = dispatch.scale_pitch;
  view.scale_stride = dispatch.scale_stride;
  view.scale_bytes = dispatch.scale_bytes();
  view.scale_element_bytes = static_cast<int>(dtype_bytes(dispatch.scale_dtype));
  view.is_topk_int64 = route.is_topk_int64 ? 1 : 0;
  view.counts_to =
      reinterpret_cast<std::int64_t*>(delivery_part(dispatch.slot, layout_.delivery.counts));
  view.complete = complete_view(dispatch, route);
  view.transform = transform_of(dispatch);
  view.dtype = static_cast<int>(dispatch.row_dtype);
  view.hidden = dispatch.hidden;
  view.expands = is_expanded(dispatch) ? 1 : 0;
  return view;
}

void Engine::enqueue_move(const DeviceRoute& route, const DispatchView& view, cudaStream_t stream) {
  plan::LaunchInput input = launch_input(route.num_tokens);
  // One row arrives while another leaves.
  constexpr std::int64_t kLine = 128;
  input.warp_bytes = view.transform == kCopy ? 2 * ((view.row_bytes + kLine - 1) / kLine * kLine)
                                             : quantize_stage(view.hidden, view.scale_bytes).bytes;
  input.has_bulk_copy = has_bulk_copy_ && view.transform != kScale;
  check(launch_dispatch(view_, route.view, view, as_launch(plan::pick_dispatch_launch(input)),
                        stream),
        "moving rows");
}

// Rows that change per destination, and rows wider than a team can hold, take three kernels.
bool Engine::is_at_once(const engine::DispatchOperation& dispatch, const DispatchView& view) const {
  const std::int64_t x_row_bytes =
      dispatch.hidden * static_cast<std::int64_t>(dtype_bytes(dispatch.x_dtype));
  return has_resident_blocks_ && view.transform != kScale &&
         x_row_bytes <= LowLatencyLaunch::kMostRowBytes;
}

void Engine::dispatch_at_once(const engine::DispatchOperation& dispatch,
                              const DeviceRoute& route,
                              const DispatchView& view,
                              const OpenGate& gate,
                              cudaStream_t stream) {
  const plan::TeamLaunchSize size =
      plan::pick_team_launch(at_once_input(route.num_tokens), LowLatencyLaunch::kMostTeams);
  check(launch_dispatch_at_once(
            view_, route.view, view, gate,
            {dispatch.is_split ? 0 : 1, static_cast<std::int32_t>(Operation::kDispatch)},
            {size.num_blocks, size.num_teams}, stream),
        "moving rows at once");
}

CompleteView Engine::complete_view(const engine::DispatchOperation& dispatch,
                                   const DeviceRoute& route) const {
  const layout::DeliverySlot& parts = layout_.delivery;
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  // Exactly sized rows of by_rank are all written by their sources.
  if (is_by_rank && route.sizing == Sizing::kExact) return {};
  CompleteView view{};
  view.rows = rows_of(dispatch);
  view.scales =
      delivery_part(dispatch.slot, is_transposed(dispatch) ? parts.scales_scratch : parts.scales);
  view.topk_idx = delivery_part(dispatch.slot, parts.topk_idx);
  view.weights = delivery_part(dispatch.slot, parts.weights);
  view.row_expert = reinterpret_cast<std::int32_t*>(delivery_part(dispatch.slot, parts.row_expert));
  view.num_output_rows = route.num_output_rows();
  view.row_bytes = dispatch.row_bytes;
  view.scale_bytes = dispatch.scale_bytes();
  view.weight_bytes = dispatch.has_weights ? (is_by_rank ? config_.top_k * 4 : 4) : 0;
  view.is_topk_int64 = route.is_topk_int64 ? 1 : 0;
  view.zeroes_gaps = dispatch.gaps == Gaps::kZeroed ? 1 : 0;
  return view;
}

void Engine::finish_dispatch(engine::DispatchOperation& dispatch) {
  if (dispatch.is_finished) return;
  dispatch.is_finished = true;
  const cudaStream_t stream = enter(dispatch.stream);
  // At once: said already, and where nothing was split, waited for.
  if (!dispatch.is_low_latency || dispatch.is_split)
    close(dispatch.sequence, Operation::kDispatch, !dispatch.is_split, true, stream);
  if (is_expanded(dispatch)) expand_rows(dispatch, stream);
  if (is_transposed(dispatch)) {
    const engine::RouteState& route = *dispatch.route;
    const bool is_padded = route.shape.layout == Layout::kPadded;
    const std::int64_t num_blocks = is_padded ? route.num_local_experts(rank()) : 1;
    const std::int64_t block_rows =
        num_blocks > 0 ? route.num_output_rows() / num_blocks : route.num_output_rows();
    const TransposeView view{delivery_part(dispatch.slot, layout_.delivery.scales_scratch),
                             delivery_part(dispatch.slot, layout_.delivery.scales),
                             block_rows,
                             num_blocks,
                             dispatch.num_scales,
                             static_cast<int>(dtype_bytes(dispatch.scale_dtype))};
    check(launch_transpose(view, stream), "transposing scales");
  }
  copy_to_caller(dispatch, stream);
  if (dispatch.route->is_planned) return count_dispatch(dispatch);
  uncounted_.push_back({std::static_pointer_cast<DeviceRoute>(dispatch.route), dispatch,
                        engine::CombineOperation{}});
  count_answered();
}

// Rows that are scaled by weights differ from copy to copy.
bool Engine::is_expanded(const engine::DispatchOperation& dispatch) const {
  return expands_ && dispatch.route->shape.layout != Layout::kByRank &&
         !dispatch.is_scaled_by_weights;
}

void Engine::expand_rows(const engine::DispatchOperation& dispatch, cudaStream_t stream) {
  const auto& route = static_cast<const DeviceRoute&>(*dispatch.route);
  const layout::DeliverySlot& parts = layout_.delivery;
  const auto words = [&](std::int64_t part) {
    return reinterpret_cast<const std::int32_t*>(delivery_part(dispatch.slot, part));
  };
  const ExpandView view{
      route.view.has_error,
      words(parts.row_expert),
      words(parts.copy_of),
      rows_of(dispatch),
      delivery_part(dispatch.slot, is_transposed(dispatch) ? parts.scales_scratch : parts.scales),
      route.num_output_rows(),
      dispatch.row_bytes,
      dispatch.scale_bytes()};
  const int num_blocks =
      plan::pick_combine_launch(launch_input(route.num_output_rows())).num_blocks;
  check(launch_expand(view_, view, num_blocks, stream), "copying rows to their other experts");
}

void Engine::copy_to_caller(const engine::DispatchOperation& dispatch, cudaStream_t stream) {
  const engine::RouteState& route = *dispatch.route;
  const layout::DeliverySlot& parts = layout_.delivery;
  const std::int64_t num_rows = route.num_output_rows();
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  const auto copy = [&](std::byte* out, std::int64_t part, std::int64_t bytes_per_row) {
    if (out == nullptr || num_rows == 0) return;
    check(cudaMemcpyAsync(out, delivery_part(dispatch.slot, part),
                          static_cast<std::size_t>(num_rows * bytes_per_row),
                          cudaMemcpyDeviceToDevice, stream),
          "copying to outputs outside the arena");
  };
  copy(dispatch.staged_out, parts.rows, dispatch.row_bytes);
  copy(dispatch.scales_out, parts.scales, dispatch.scale_bytes());
  copy(dispatch.topk_out, parts.topk_idx, config_.top_k * (route.is_topk_int64 ? 8 : 4));
  copy(dispatch.weights_out, parts.weights, is_by_rank ? config_.top_k * 4 : 4);
}

void Engine::count_dispatch(const engine::DispatchOperation& dispatch) const {
  auto& route = static_cast<DeviceRoute&>(*dispatch.route);
  if (route.error) return;
  const std::int64_t bytes = dispatch.row_bytes + dispatch.scale_bytes();
  std::int64_t num_received = 0;
  for (const std::int64_t rows : route.receive.rows_from_rank) num_received += rows;
  const bool is_staged = dispatch.staged_out != nullptr;
  const DeviceRoute::SentRows& sent = is_expanded(dispatch) ? route.sent_once : route.sent;
  for (Counters* counters : {&counters_, &route.counters}) {
    counters->dispatches += 1;
    counters->dispatch_logical_bytes += num_received * bytes;
    counters->dispatch_wire_bytes += sent.wire * bytes;
    counters->memory_bytes_read += route.num_tokens * dispatch.hidden *
                                   static_cast<std::int64_t>(dtype_bytes(dispatch.x_dtype));
    counters->memory_bytes_written += sent.all * bytes;
    if (is_expanded(dispatch)) {
      counters->memory_bytes_read += route.num_copied_rows * bytes;
      counters->memory_bytes_written += route.num_copied_rows * bytes;
    }
    if (is_staged) counters->staged_bytes += num_received * dispatch.row_bytes;
  }
}

}  // namespace ferry::cuda
