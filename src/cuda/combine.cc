// Combine on the host's side: owners pull their rows from the peers' y. A y outside the arena is
// copied into it first, which costs one pass of this rank's own memory and none of a link.
#include <algorithm>

#include "base/human.hpp"
#include "cuda/check.hpp"
#include "cuda/engine.hpp"

namespace ferry::cuda {

using layout::GateSlot;
using layout::Operation;

namespace {

CombineView combine_view(const engine::CombineOperation& combine) {
  return {combine.out,
          combine.out_pitch,
          combine.row_bytes,
          combine.topk_weights,
          combine.topk_weights_pitch,
          combine.bias,
          combine.bias_pitch,
          combine.second_bias,
          combine.second_bias_pitch,
          static_cast<int>(combine.dtype)};
}

// Whether y is copied into the arena first: it lies outside, or is to be free early.
bool is_staged(const engine::CombineOperation& combine) {
  return combine.kind == Operation::kCombine &&
         (!combine.y_offset || combine.form == CombineForm::kPush);
}

}  // namespace

void Engine::begin_combine(engine::CombineOperation& combine) {
  const cudaStream_t stream = enter(combine.stream);
  const auto& route = static_cast<const DeviceRoute&>(*combine.route);
  const bool is_scalars_only = combine.kind == Operation::kCombineWeights;
  std::int64_t rows_offset = 0;
  if (!combine.error && !route.error)
    combine.error = capture_error([&] {
      check_aligned("out", combine.out, combine.out_pitch);
      check_aligned("bias", combine.bias, combine.bias_pitch);
      check_aligned("second_bias", combine.second_bias, combine.second_bias_pitch);
      if (!is_scalars_only) rows_offset = offer_rows(combine, route, stream);
      offer_row_weights(combine, route, stream);
    });
  const std::uint64_t sequence = ++sequence_;
  combine.sequence = sequence;
  // Along a route with an error nothing moves on any rank; whatever else is wrong follows from it.
  if (route.error) combine.error.reset();
  OpenGate gate = make_gate(shape_of(combine), combine.error, sequence, stream);
  if (route.error) combine.error = route.error;
  gate.route_error = route.view.has_error;
  // Staging and scratch are both refilled only when every peer has read them.
  gate.is_staged = !combine.error && (is_staged(combine) || combine.has_row_weights) ? 1 : 0;
  gate.slot.words[GateSlot::kRowsOffset] = static_cast<std::uint64_t>(rows_offset);
  gate.slot.words[GateSlot::kRowsPitch] =
      static_cast<std::uint64_t>(is_staged(combine) ? combine.row_bytes : combine.y_pitch);
  gate.slot.words[GateSlot::kWeightsOffset] = static_cast<std::uint64_t>(layout_.weights_scratch);
  combine.is_low_latency = !combine.error && has_resident_blocks_ && !combine.has_row_weights;
  if (combine.is_low_latency) {
    combine_at_once(combine, route, gate, stream);
  } else {
    check(launch_open_gate(view_, gate, stream), "opening a combine");
    if (!combine.error) enqueue_sums(combine, route, stream);
    if (combine.is_split || combine.error) close(sequence, combine.kind, true, false, stream);
  }
  if (combine.error) throw_error(combine.error->code(), combine.error->what());
}

void Engine::enqueue_sums(const engine::CombineOperation& combine,
                          const DeviceRoute& route,
                          cudaStream_t stream) {
  if (combine.kind != Operation::kCombineWeights) {
    const plan::LaunchSize size = plan::pick_combine_launch(launch_input(route.num_tokens));
    check(launch_combine(view_, route.view, combine_view(combine),
                         {size.num_blocks, size.num_warps, 0, static_cast<int>(size.shared_bytes)},
                         stream),
          "summing rows");
  }
  if (combine.has_row_weights)
    check(launch_combine_weights(view_, route.view, combine.combined_weights, stream),
          "gathering weights");
}

void Engine::combine_at_once(const engine::CombineOperation& combine,
                             const DeviceRoute& route,
                             const OpenGate& gate,
                             cudaStream_t stream) {
  const plan::LaunchSize size = plan::pick_combine_launch(at_once_input(route.num_tokens));
  check(launch_combine_at_once(
            view_, route.view, combine_view(combine), gate,
            {combine.is_split ? 0 : 1, static_cast<std::int32_t>(Operation::kCombine)},
            size.num_blocks, stream),
        "summing rows at once");
}

// The arena offset at which the peers find this rank's y.
std::int64_t Engine::offer_rows(const engine::CombineOperation& combine,
                                const DeviceRoute& route,
                                cudaStream_t stream) {
  if (!is_staged(combine)) {
    FERRY_CHECK(*combine.y_offset % 16 == 0 && combine.y_pitch % 16 == 0,
                ErrorCode::kInvalidArgument,
                "rank {}: y lies at offset {} of the arena with {} bytes between rows, expected "
                "multiples of 16",
                rank(), *combine.y_offset, combine.y_pitch);
    return *combine.y_offset;
  }
  FERRY_CHECK(combine.form != CombineForm::kPull, ErrorCode::kInvalidArgument,
              "combine by pull needs y inside the arena, rank {}'s y is outside; try: "
              "exchange.allocate, or form push",
              rank());
  const std::int64_t num_rows = route.num_output_rows();
  const std::int64_t need = num_rows * combine.row_bytes;
  FERRY_CHECK(need <= layout_.staging_bytes, ErrorCode::kNoResource,
              "rank {}: a y of {} ({} bytes) outside the arena does not fit into the staging of {} "
              "bytes; try: y from allocate(), or a larger memory_limit",
              rank(), human_bytes(need), need, layout_.staging_bytes);
  check(launch_staging_wait(view_, stream), "waiting for the staging area");
  check_aligned("y", combine.y, combine.y_pitch);
  const bool is_padded = route.shape.layout == Layout::kPadded;
  const std::int64_t num_local = is_padded ? route.num_local_experts(rank()) : 0;
  const StageView stage{
      combine.y,         combine.y_pitch, arena_.base() + layout_.staging[0],
      combine.row_bytes, num_rows,        num_local > 0 ? num_rows / num_local : 0};
  check(launch_stage(route.view, stage, config_.num_sms > 0 ? config_.num_sms : num_sms_, stream),
        "staging y");
  return layout_.staging[0];
}

void Engine::offer_row_weights(const engine::CombineOperation& combine,
                               const DeviceRoute& route,
                               cudaStream_t stream) {
  const std::int64_t num_rows = route.num_output_rows();
  if (!combine.has_row_weights || num_rows == 0) return;
  const std::int64_t row_bytes = route.shape.layout == Layout::kByRank ? config_.top_k * 4 : 4;
  check(launch_staging_wait(view_, stream), "waiting for the weights' scratch");
  check(cudaMemcpyAsync(arena_.base() + layout_.weights_scratch, combine.row_weights,
                        static_cast<std::size_t>(num_rows * row_bytes), cudaMemcpyDeviceToDevice,
                        stream),
        "offering row weights");
}

void Engine::finish_combine(engine::CombineOperation& combine) {
  if (combine.is_finished) return;
  combine.is_finished = true;
  // y and the weights are the caller's again only when every peer has read them.
  const cudaStream_t stream = enter(combine.stream);
  if (!combine.is_low_latency || combine.is_split)
    close(combine.sequence, combine.kind, !combine.is_split, true, stream);
  if (combine.route->is_planned) return count_combine(combine);
  uncounted_.push_back(
      {std::static_pointer_cast<DeviceRoute>(combine.route), engine::DispatchOperation{}, combine});
  count_answered();
}

void Engine::count_combine(const engine::CombineOperation& combine) const {
  auto& route = static_cast<DeviceRoute&>(*combine.route);
  if (combine.kind == Operation::kCombineWeights || route.error) return;
  std::int64_t num_received = 0;
  for (const std::int64_t rows : route.receive.rows_from_rank) num_received += rows;
  for (Counters* counters : {&counters_, &route.counters}) {
    counters->combines += 1;
    counters->combine_logical_bytes += num_received * combine.row_bytes;  // contributed
    counters->combine_wire_bytes +=
        (num_received - route.receive.rows_from_rank[static_cast<std::size_t>(rank())]) *
        combine.row_bytes;  // read by their tokens' owners
    counters->memory_bytes_read += route.sent.all * combine.row_bytes;
    counters->memory_bytes_written += route.num_tokens * combine.row_bytes;
    if (!is_staged(combine)) continue;
    counters->memory_bytes_read += num_received * combine.row_bytes;
    counters->memory_bytes_written += num_received * combine.row_bytes;
    counters->staged_bytes += num_received * combine.row_bytes;
  }
}

}  // namespace ferry::cuda
