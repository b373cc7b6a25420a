// Dispatch, the sending half. Phases: (1) reserve the pages that this rank receives into and grant
// them in its header; (2) gate; (3) move: every row is read once and written at its final place in
// each destination, its metadata beside it; (4) fence and announce.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/human.hpp"
#include "cpu/copy.hpp"
#include "cpu/engine.hpp"
#include "cpu/quantize.hpp"
#include "cpu/reduce.hpp"
#include "cpu/row_source.hpp"

namespace ferry::cpu {

using layout::Operation;
using layout::OperationShape;
using layout::OperationWords;

namespace {

constexpr std::int64_t kTokensPerPiece = 32;
constexpr int kMostDestinations = 32;  // rows of one token: top_k at most

template <typename Value>
void store(std::byte* address, Value value) {
  std::memcpy(address, &value, sizeof(value));
}

// What one token's rows carry beside their data.
struct Metadata {
  const RouteState& route;
  const DispatchOperation& dispatch;
  int top_k;

  float weight_of(std::int64_t token, int k) const {
    float weight = 0;
    std::memcpy(&weight, dispatch.weights + token * dispatch.weights_pitch + k * 4, 4);
    return weight;
  }

  std::int32_t local_id(std::int64_t token, int k, int rank) const {
    const std::int32_t expert = route.topk[static_cast<std::size_t>(token * top_k + k)];
    if (expert < 0) return -1;
    const auto index = static_cast<std::size_t>(expert);
    return route.owners->rank_of[index] == rank ? route.owners->local_id_of[index] : -1;
  }

  // Fetches for writing what write() will touch: plain stores that miss the cache would hold up the
  // streaming stores of the row behind them.
  void prefetch(std::byte* peer, const OperationWords& grant, const plan::SendEntry& entry) const {
    const auto fetch = [](const std::byte* address) { __builtin_prefetch(address, 1, 3); };
    fetch(peer + grant.source_offset + entry.row * 8);
    if (route.shape.layout != Layout::kByRank) {
      if (dispatch.has_weights) fetch(peer + grant.weights_offset + entry.row * 4);
      return;
    }
    fetch(peer + grant.topk_offset + entry.row * top_k * (route.is_topk_int64 ? 8 : 4));
    if (dispatch.has_weights) fetch(peer + grant.weights_offset + entry.row * top_k * 4);
  }

  // `peer` is the destination's arena, `grant` the header it published.
  void write(std::byte* peer,
             const OperationWords& grant,
             std::int64_t token,
             const plan::SendEntry& entry) const {
    std::byte* source = peer + grant.source_offset + entry.row * 8;
    store(source, static_cast<std::int32_t>(token));
    store(source + 4, static_cast<std::int32_t>(entry.slot));
    if (route.shape.layout != Layout::kByRank) {
      if (dispatch.has_weights)
        store(peer + grant.weights_offset + entry.row * 4, weight_of(token, entry.k));
      return;
    }
    const std::int64_t id_bytes = route.is_topk_int64 ? 8 : 4;
    std::byte* ids = peer + grant.topk_offset + entry.row * top_k * id_bytes;
    std::byte* weights = peer + grant.weights_offset + entry.row * top_k * 4;
    for (int k = 0; k < top_k; ++k) {
      const std::int32_t local = local_id(token, k, entry.rank);
      if (route.is_topk_int64)
        store(ids + k * 8, static_cast<std::int64_t>(local));
      else
        store(ids + k * 4, local);
      // The weight of a column that lives elsewhere is 0, whatever the caller's tensor holds.
      if (dispatch.has_weights) store(weights + k * 4, local >= 0 ? weight_of(token, k) : 0.0f);
    }
  }
};

}  // namespace

// Pages for the rows that hold data; gaps get theirs only when they are to be zeroed.
void Engine::reserve_rows(const RouteState& route,
                          std::int64_t offset,
                          std::int64_t bytes_per_row) {
  for_each_filled_run(route, [&](std::int64_t first, std::int64_t num_rows) {
    arena_.reserve(offset + first * bytes_per_row, num_rows * bytes_per_row);
  });
}

void Engine::reserve_delivery(DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  const layout::DeliverySlot& parts = layout_.delivery;
  const std::int64_t slot = layout_.deliveries[dispatch.slot];
  const std::int64_t num_rows = route.num_output_rows();
  if (!dispatch.direct_offset) {
    const std::int64_t need = num_rows * dispatch.row_bytes;
    // The low-latency form places rows by itself and stages nothing in windows.
    const bool is_window = !dispatch.is_low_latency && dispatch.staged_out != nullptr &&
                           config_.memory_limit > 0 && need > config_.memory_limit;
    FERRY_CHECK(!is_window || route.shape.layout != Layout::kPadded, ErrorCode::kNoResource,
                "rank {}: padded outputs of {} ({} bytes) outside the arena are staged whole and "
                "memory_limit is {} bytes; try: outputs from allocate()",
                rank(), human_bytes(need), need, config_.memory_limit);
    const plan::Chunks chunks =
        plan::plan_chunks(num_rows, dispatch.row_bytes, is_window ? config_.memory_limit : 0);
    dispatch.rows_per_chunk = std::max<std::int64_t>(chunks.items_per_chunk, 1);
    if (is_window)
      arena_.reserve(slot + parts.rows, dispatch.rows_per_chunk * dispatch.row_bytes);
    else
      reserve_rows(route, slot + parts.rows, dispatch.row_bytes);
    if (dispatch.gaps == Gaps::kZeroed && !is_window)
      arena_.reserve(slot + parts.rows, num_rows * dispatch.row_bytes);
  }
  reserve_rows(route, slot + parts.row_source, 8);
  if (dispatch.num_scales > 0) {
    reserve_rows(route, slot + parts.scales, dispatch.scale_bytes());
    if (dispatch.gaps == Gaps::kZeroed || dispatch.scale_layout == ScaleLayout::kColumnMajor)
      arena_.reserve(slot + parts.scales,
                     (num_rows + 4 * std::int64_t{config_.num_experts}) * dispatch.scale_bytes());
  }
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  if (is_by_rank)
    arena_.reserve(slot + parts.topk_idx, num_rows * config_.top_k * (route.is_topk_int64 ? 8 : 4));
  else
    arena_.reserve(slot + parts.row_expert, num_rows * 4);
  if (dispatch.has_weights) {
    const std::int64_t weight_bytes = is_by_rank ? config_.top_k * 4 : 4;
    reserve_rows(route, slot + parts.weights, weight_bytes);
    if (dispatch.gaps == Gaps::kZeroed)
      arena_.reserve(slot + parts.weights, num_rows * weight_bytes);
  }
  arena_.reserve(slot + parts.counts, parts.bytes - parts.counts);
}

OperationWords Engine::words_of(const DispatchOperation& dispatch) const {
  const layout::DeliverySlot& parts = layout_.delivery;
  const std::int64_t slot = layout_.deliveries[dispatch.slot];
  OperationWords words;
  words.num_tokens = dispatch.route->num_tokens;
  words.is_staged = dispatch.staged_out != nullptr ? 1 : 0;
  words.rows_offset = dispatch.direct_offset.value_or(slot + parts.rows);
  words.rows_pitch = dispatch.row_bytes;
  words.scales_offset = slot + parts.scales;
  words.topk_offset = slot + parts.topk_idx;
  words.weights_offset = slot + parts.weights;
  words.source_offset = slot + parts.row_source;
  set_error(words, dispatch.error);
  return words;
}

void Engine::begin_dispatch(DispatchOperation& dispatch) {
  RouteState& route = *dispatch.route;
  dispatch.is_low_latency = config_.is_low_latency;
  if (dispatch.is_low_latency) return begin_low_latency_dispatch(dispatch);

  if (!route.is_planned) plan_pending_routes(route.sequence);
  if (route.error) dispatch.error = route.error;  // whatever else is wrong follows from it
  if (!dispatch.error) dispatch.error = capture_error([&] { reserve_delivery(dispatch); });
  dispatch.sequence = publish(shape_of(dispatch), words_of(dispatch));
  gate_.pass(dispatch.sequence);

  // Chunks follow from exchanged values only, so that every rank counts the same.
  dispatch.num_chunks = 1;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (gate_.words_of(peer, dispatch.sequence).is_staged == 0 || config_.memory_limit <= 0)
      continue;
    if (route.shape.layout == Layout::kPadded) continue;
    const std::int64_t rows = route.sizing == Sizing::kExact
                                  ? route.num_rows_of[static_cast<std::size_t>(peer)]
                                  : route.worst_rows;
    const plan::Chunks chunks = plan::plan_chunks(rows, dispatch.row_bytes, config_.memory_limit);
    dispatch.num_chunks = std::max(dispatch.num_chunks, chunks.num_chunks);
  }

  send_rows(dispatch, 0);
  for (std::int64_t chunk = 1; chunk < dispatch.num_chunks; ++chunk) {
    receive_chunk(dispatch, chunk - 1);
    OperationShape shape = shape_of(dispatch);
    shape.operation = static_cast<std::int32_t>(Operation::kDispatchChunk);
    dispatch.sequence = publish(shape, words_of(dispatch));
    gate_.pass(dispatch.sequence);
    send_rows(dispatch, chunk);
  }
}

// The bytes that token `token` sends, made in the buffers where they differ from the caller's.
void Engine::prepare_row(const DispatchOperation& dispatch,
                         std::int64_t token,
                         std::byte* row_buffer,
                         std::byte* scale_buffer,
                         const std::byte*& row,
                         const std::byte*& scales) const {
  row = dispatch.x + token * dispatch.x_pitch;
  scales = nullptr;
  if (dispatch.quantize != Quantize::kNone) {
    quantize_row(dispatch.quantize, reinterpret_cast<const std::uint16_t*>(row), dispatch.hidden,
                 reinterpret_cast<std::uint8_t*>(row_buffer), scale_buffer);
    row = row_buffer;
    scales = scale_buffer;
  } else if (dispatch.num_scales > 0) {
    const auto element = static_cast<std::int64_t>(dtype_bytes(dispatch.scale_dtype));
    const std::byte* first = dispatch.scales + token * dispatch.scale_pitch;
    scales = first;
    if (dispatch.scale_stride != element) {
      for (std::int64_t s = 0; s < dispatch.num_scales; ++s)
        std::memcpy(scale_buffer + s * element, first + s * dispatch.scale_stride,
                    static_cast<std::size_t>(element));
      scales = scale_buffer;
    }
  }
}

void Engine::send_rows(DispatchOperation& dispatch, std::int64_t chunk) {
  const RouteState& route = *dispatch.route;
  const std::int64_t row_bytes = dispatch.row_bytes;
  const std::int64_t scale_bytes = dispatch.scale_bytes();

  // Where each rank's rows go in this chunk: rows [first, end) at `base`.
  struct Target {
    std::byte* arena;
    const OperationWords* grant;
    std::byte* rows;
    std::int64_t first;
    std::int64_t end;
  };
  std::vector<Target> targets;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const OperationWords& grant = gate_.words_of(peer, dispatch.sequence);
    Target target{arena_.base_of(peer), &grant, arena_.base_of(peer) + grant.rows_offset, 0,
                  INT64_MAX};
    const bool is_window =
        grant.is_staged != 0 && config_.memory_limit > 0 && route.shape.layout != Layout::kPadded;
    if (is_window) {
      const std::int64_t rows = route.sizing == Sizing::kExact
                                    ? route.num_rows_of[static_cast<std::size_t>(peer)]
                                    : route.worst_rows;
      const plan::Chunks chunks = plan::plan_chunks(rows, row_bytes, config_.memory_limit);
      target.first = chunk * chunks.items_per_chunk;
      target.end = target.first + chunks.items_per_chunk;
    } else if (chunk > 0) {
      target.end = 0;  // everything went in the first chunk
    }
    targets.push_back(target);
  }

  const Metadata metadata{route, dispatch, config_.top_k};
  struct Buffers {
    std::vector<std::byte> row;
    std::vector<std::byte> scales;
  };
  std::vector<Buffers> buffers(static_cast<std::size_t>(pool_.num_threads()));
  for (Buffers& worker : buffers) {
    worker.row.resize(static_cast<std::size_t>(row_bytes));
    worker.scales.resize(static_cast<std::size_t>(scale_bytes));
  }

  pool_.parallel_for(
      route.num_tokens, kTokensPerPiece, [&](std::int64_t begin, std::int64_t end, int worker) {
        Buffers& own = buffers[static_cast<std::size_t>(worker)];
        for (std::int64_t token = begin; token < end; ++token) {
          const std::span<const plan::SendEntry> entries = route.send.of_token(token);
          if (chunk == 0 && token + 1 < end)
            for (const plan::SendEntry& entry : route.send.of_token(token + 1)) {
              const Target& target = targets[static_cast<std::size_t>(entry.rank)];
              metadata.prefetch(target.arena, *target.grant, entry);
            }
          if (entries.empty()) continue;
          const std::byte* row = nullptr;
          const std::byte* scales = nullptr;
          prepare_row(dispatch, token, own.row.data(), own.scales.data(), row, scales);
          std::array<void*, kMostDestinations> places{};
          int num_places = 0;
          for (const plan::SendEntry& entry : entries) {
            const Target& target = targets[static_cast<std::size_t>(entry.rank)];
            if (chunk == 0) {
              metadata.write(target.arena, *target.grant, token, entry);
              if (scales != nullptr)
                std::memcpy(target.arena + target.grant->scales_offset + entry.row * scale_bytes,
                            scales, static_cast<std::size_t>(scale_bytes));
            }
            if (entry.row < target.first || entry.row >= target.end) continue;
            std::byte* place = target.rows + (entry.row - target.first) * row_bytes;
            if (dispatch.is_scaled_by_weights) {
              scale_row(dispatch.row_dtype, own.row.data(), row, metadata.weight_of(token, entry.k),
                        dispatch.hidden);
              stream_copy(place, own.row.data(), static_cast<std::size_t>(row_bytes));
            } else {
              places[static_cast<std::size_t>(num_places++)] = place;
            }
          }
          stream_copy_to_many(places.data(), num_places, row, static_cast<std::size_t>(row_bytes));
        }
        gate_.tick_progress();
        // Each thread fences its own streaming stores before the pool's join orders them before the
        // release in announce().
        stream_fence();
      });
  gate_.announce(Word::kMoved, dispatch.sequence);
  if (chunk > 0) return;
  dispatch.num_written_rows = static_cast<std::int64_t>(route.send.entries.size());
  for (const plan::SendEntry& entry : route.send.entries)
    dispatch.num_wire_rows += entry.rank != rank() ? 1 : 0;
  count_dispatch(dispatch);
}

void Engine::count_dispatch(DispatchOperation& dispatch) {
  RouteState& route = *dispatch.route;
  const std::int64_t bytes = dispatch.row_bytes + dispatch.scale_bytes();
  std::int64_t num_received = 0;
  for (const std::int64_t rows : route.receive.rows_from_rank) num_received += rows;
  std::int64_t num_active_tokens = 0;
  for (std::size_t token = 0; token + 1 < route.send.token_begin.size(); ++token)
    num_active_tokens += route.send.token_begin[token + 1] > route.send.token_begin[token] ? 1 : 0;
  const std::int64_t x_row_bytes =
      dispatch.hidden * static_cast<std::int64_t>(dtype_bytes(dispatch.x_dtype));
  for (Counters* counters : {&counters_, &route.counters}) {
    counters->dispatches += 1;
    counters->dispatch_logical_bytes += num_received * bytes;
    counters->dispatch_wire_bytes += dispatch.num_wire_rows * bytes;
    counters->memory_bytes_read += num_active_tokens * x_row_bytes;
    counters->memory_bytes_written += dispatch.num_written_rows * bytes;
    if (!dispatch.is_low_latency) continue;
    counters->memory_bytes_read += num_received * bytes;
    counters->memory_bytes_written += num_received * bytes;
    counters->staged_bytes += (num_received - dispatch.num_direct_rows) * bytes;
  }
}

}  // namespace ferry::cpu
