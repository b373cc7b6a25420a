// Low latency, the expanding form. A sender does not know its rows' final places yet: it writes one
// record per (token, destination rank) into its own part of a fixed region at the destination,
// which the receiver's last finish but one has granted, and announces. Counts travel at the same
// time; the receiver waits once, for both, and places the rows. Combine pushes rows into fixed
// slots at the token's owner in the same way. There is a buffer of each for every outstanding
// operation.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cpu/copy.hpp"
#include "cpu/engine.hpp"
#include "cpu/reduce.hpp"

namespace ferry::cpu {

using layout::OperationWords;

namespace {

constexpr std::uint64_t kBuffers = layout::ArenaLayout::kLowLatencyBuffers;

// One record to send: a token to one of its destinations.
struct Parcel {
  std::int32_t token;
  std::int32_t rank;
  std::int32_t slot;      // position of the rank among the token's destinations, ascending
  std::int32_t position;  // among the records for that rank
};

std::vector<Parcel> list_parcels(const RouteState& route, int top_k, int num_ranks) {
  std::vector<Parcel> parcels;
  std::vector<std::int32_t> num_sent(static_cast<std::size_t>(num_ranks), 0);
  for (std::int64_t token = 0; token < route.num_tokens; ++token) {
    std::array<std::int32_t, 32> ranks{};
    std::size_t num_ranks_of_token = 0;
    for (int k = 0; k < top_k; ++k) {
      const std::int32_t expert = route.topk[static_cast<std::size_t>(token * top_k + k)];
      if (expert >= 0)
        ranks[num_ranks_of_token++] = route.owners->rank_of[static_cast<std::size_t>(expert)];
    }
    std::sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(num_ranks_of_token));
    std::int32_t slot = 0;
    for (std::size_t i = 0; i < num_ranks_of_token; ++i) {
      if (i > 0 && ranks[i] == ranks[i - 1]) continue;
      parcels.push_back({static_cast<std::int32_t>(token), ranks[i], slot++,
                         num_sent[static_cast<std::size_t>(ranks[i])]++});
    }
  }
  return parcels;
}

// Grants an operation's region again at the end of its finish, whatever became of it: each source
// writes only after its own earlier writes.
struct Consume {
  Gate& gate;
  Word word;
  LowLatencySequence& sequence;
  std::uint64_t ordinal;
  ~Consume() { gate.announce(word, sequence.consume(ordinal)); }
};

template <typename Value>
Value load(const std::byte* address) {
  Value value{};
  std::memcpy(&value, address, sizeof(value));
  return value;
}

}  // namespace

void Engine::begin_low_latency_dispatch(DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  if (route.is_planned && route.error) dispatch.error = route.error;
  dispatch.sequence = publish(shape_of(dispatch), words_of(dispatch));
  const std::uint64_t ordinal = ++ll_dispatches_.num_begun;
  dispatch.low_latency_ordinal = ordinal;
  if (!dispatch.error) {
    if (ordinal > kBuffers)
      gate_.wait_all(Word::kLlDispatchConsumed, ordinal - kBuffers, dispatch.sequence);
    send_parcels(dispatch);
  }
  gate_.announce(Word::kMoved, dispatch.sequence);
}

void Engine::send_parcels(DispatchOperation& dispatch) {
  const RouteState& route = *dispatch.route;
  const layout::LowLatencyRecord& parts = layout_.ll_record;
  const std::int64_t region = layout_.ll_dispatch +
                              static_cast<std::int64_t>(dispatch.low_latency_ordinal % kBuffers) *
                                  layout_.ll_dispatch_bytes +
                              rank() * config_.max_tokens * parts.bytes;
  const std::vector<Parcel> parcels = list_parcels(route, config_.top_k, num_ranks());
  const auto num_parcels = static_cast<std::int64_t>(parcels.size());
  pool_.parallel_for(num_parcels, 8, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::byte> row_buffer(static_cast<std::size_t>(dispatch.row_bytes));
    std::vector<std::byte> scale_buffer(static_cast<std::size_t>(dispatch.scale_bytes()));
    std::int32_t prepared = -1;
    const std::byte* row = nullptr;
    const std::byte* scales = nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      const Parcel& parcel = parcels[static_cast<std::size_t>(i)];
      if (parcel.token != prepared)
        prepare_row(dispatch, parcel.token, row_buffer.data(), scale_buffer.data(), row, scales);
      prepared = parcel.token;
      std::byte* record = arena_.base_of(parcel.rank) + region + parcel.position * parts.bytes;
      // Plain stores: the receiver reads these bytes next, so they should stay in the cache.
      if (parcel.rank != rank() || !dispatch.takes_own_rows_from_x())
        std::memcpy(record + parts.row, row, static_cast<std::size_t>(dispatch.row_bytes));
      if (scales != nullptr)
        std::memcpy(record + parts.scales, scales,
                    static_cast<std::size_t>(dispatch.scale_bytes()));
      for (int k = 0; k < config_.top_k; ++k) {
        const std::int32_t expert =
            route.topk[static_cast<std::size_t>(parcel.token * config_.top_k + k)];
        const bool is_there =
            expert >= 0 && route.owners->rank_of[static_cast<std::size_t>(expert)] == parcel.rank;
        const std::int32_t local =
            is_there ? route.owners->local_id_of[static_cast<std::size_t>(expert)] : -1;
        std::memcpy(record + parts.topk_idx + k * 4, &local, 4);
        float weight = 0;
        if (is_there && dispatch.has_weights)
          weight = load<float>(dispatch.weights + parcel.token * dispatch.weights_pitch + k * 4);
        std::memcpy(record + parts.weights + k * 4, &weight, 4);
      }
      std::memcpy(record + parts.source, &parcel.token, 4);
      std::memcpy(record + parts.source + 4, &parcel.slot, 4);
    }
  });
  std::int64_t num_remote = 0;
  for (const Parcel& parcel : parcels) num_remote += parcel.rank != rank() ? 1 : 0;
  dispatch.num_wire_rows = num_remote;
  dispatch.num_direct_rows = dispatch.takes_own_rows_from_x() ? num_parcels - num_remote : 0;
  dispatch.num_written_rows = num_parcels - dispatch.num_direct_rows;
}

void Engine::finish_low_latency_dispatch(DispatchOperation& dispatch) {
  RouteState& route = *dispatch.route;
  {
    const Consume consume{gate_, Word::kLlDispatchConsumed, ll_dispatches_,
                          dispatch.low_latency_ordinal};
    if (!route.is_planned) plan_pending_routes(route.sequence);
    if (route.error) throw_error(route.error->code(), route.error->what());
    gate_.pass(dispatch.sequence);
    reserve_delivery(dispatch);
    std::vector<int> sources;
    for (int source = 0; source < num_ranks(); ++source)
      if (route.receive.tokens_from_rank[static_cast<std::size_t>(source)] > 0)
        sources.push_back(source);
    gate_.wait(Word::kMoved, dispatch.sequence, dispatch.sequence, sources);
    for (const int source : sources) expand_source(dispatch, source);
    stream_fence();
  }
  receive_chunk(dispatch, 0);
  complete_delivery(dispatch);
  count_dispatch(dispatch);
}

void Engine::expand_source(DispatchOperation& dispatch, int source) {
  const RouteState& route = *dispatch.route;
  const plan::ReceivePlan& receive = route.receive;
  const layout::LowLatencyRecord& parts = layout_.ll_record;
  const std::byte* records = arena_.base() + layout_.ll_dispatch +
                             static_cast<std::int64_t>(dispatch.low_latency_ordinal % kBuffers) *
                                 layout_.ll_dispatch_bytes +
                             source * config_.max_tokens * parts.bytes;
  const auto from = static_cast<std::size_t>(source);

  // The next row of each local expert for this source.
  std::vector<std::int64_t> next(receive.expert_counts.size());
  for (std::size_t expert = 0; expert < next.size(); ++expert) {
    next[expert] = receive.expert_offsets[expert];
    for (std::size_t earlier = 0; earlier < from; ++earlier)
      next[expert] += route.local_counts[expert * static_cast<std::size_t>(num_ranks()) + earlier];
  }
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  for (std::int64_t i = 0; i < receive.tokens_from_rank[from]; ++i) {
    const std::byte* record = records + i * parts.bytes;
    if (is_by_rank) {
      const std::int64_t row = receive.source_offsets[from] + i;
      if (row < receive.source_offsets[from + 1]) place_by_rank(dispatch, source, record, row);
      continue;
    }
    for (int k = 0; k < config_.top_k; ++k) {
      const auto local = load<std::int32_t>(record + parts.topk_idx + k * 4);
      if (local < 0) continue;
      const auto expert = static_cast<std::size_t>(local);
      const std::int64_t row = next[expert]++;
      if (row < receive.expert_offsets[expert] + receive.expert_counts[expert])
        place_by_expert(dispatch, source, record, row, k);
    }
  }
}

const std::byte* Engine::row_of_record(const DispatchOperation& dispatch,
                                       int source,
                                       const std::byte* record) const {
  if (source != rank() || !dispatch.takes_own_rows_from_x()) return record + layout_.ll_record.row;
  return dispatch.x + load<std::int32_t>(record + layout_.ll_record.source) * dispatch.x_pitch;
}

void Engine::place_row(const DispatchOperation& dispatch,
                       int source,
                       const std::byte* record,
                       std::int64_t row) {
  std::memcpy(rows_of(dispatch) + row * dispatch.row_bytes, row_of_record(dispatch, source, record),
              static_cast<std::size_t>(dispatch.row_bytes));
  const std::int64_t scale_bytes = dispatch.scale_bytes();
  if (scale_bytes > 0)
    std::memcpy(delivery_part(dispatch.slot, layout_.delivery.scales) + row * scale_bytes,
                record + layout_.ll_record.scales, static_cast<std::size_t>(scale_bytes));
  std::memcpy(delivery_part(dispatch.slot, layout_.delivery.row_source) + row * 8,
              record + layout_.ll_record.source, 8);
}

void Engine::place_by_rank(const DispatchOperation& dispatch,
                           int source,
                           const std::byte* record,
                           std::int64_t row) {
  place_row(dispatch, source, record, row);
  const int top_k = config_.top_k;
  const std::byte* ids = record + layout_.ll_record.topk_idx;
  std::byte* out = delivery_part(dispatch.slot, layout_.delivery.topk_idx);
  for (int k = 0; k < top_k; ++k) {
    const auto local = load<std::int32_t>(ids + k * 4);
    if (dispatch.route->is_topk_int64) {
      const std::int64_t wide = local;
      std::memcpy(out + (row * top_k + k) * 8, &wide, 8);
    } else {
      std::memcpy(out + (row * top_k + k) * 4, &local, 4);
    }
  }
  if (dispatch.has_weights)
    std::memcpy(delivery_part(dispatch.slot, layout_.delivery.weights) + row * top_k * 4,
                record + layout_.ll_record.weights, static_cast<std::size_t>(top_k) * 4);
}

void Engine::place_by_expert(const DispatchOperation& dispatch,
                             int source,
                             const std::byte* record,
                             std::int64_t row,
                             int k) {
  place_row(dispatch, source, record, row);
  const std::int32_t slot = k;
  std::memcpy(delivery_part(dispatch.slot, layout_.delivery.row_source) + row * 8 + 4, &slot, 4);
  const auto weight = load<float>(record + layout_.ll_record.weights + k * 4);
  if (dispatch.has_weights)
    std::memcpy(delivery_part(dispatch.slot, layout_.delivery.weights) + row * 4, &weight, 4);
  if (dispatch.is_scaled_by_weights)
    scale_row(dispatch.row_dtype, rows_of(dispatch) + row * dispatch.row_bytes,
              row_of_record(dispatch, source, record), weight, dispatch.hidden);
}

void Engine::begin_low_latency_combine(CombineOperation& combine) {
  OperationWords words;
  words.num_tokens = combine.route->num_tokens;
  set_error(words, combine.error);
  combine.sequence = publish(shape_of(combine), words);
  const std::uint64_t ordinal = ++ll_combines_.num_begun;
  combine.low_latency_ordinal = ordinal;
  if (!combine.error) {
    if (ordinal > kBuffers)
      gate_.wait_all(Word::kLlCombineConsumed, ordinal - kBuffers, combine.sequence);
    std::vector<std::byte*> areas;
    for (int peer = 0; peer < num_ranks(); ++peer)
      areas.push_back(arena_.base_of(peer) + layout_.staging[ordinal % kBuffers]);
    push_rows(combine, 0, config_.max_tokens, areas);
  }
  gate_.announce(Word::kMoved, combine.sequence);
}

void Engine::finish_low_latency_combine(CombineOperation& combine) {
  const RouteState& route = *combine.route;
  const Consume consume{gate_, Word::kLlCombineConsumed, ll_combines_, combine.low_latency_ordinal};
  gate_.pass(combine.sequence);
  std::vector<bool> is_awaited(static_cast<std::size_t>(num_ranks()), false);
  for (const plan::SendEntry& entry : route.send.entries)
    is_awaited[static_cast<std::size_t>(entry.rank)] = true;
  std::vector<int> peers;
  for (int peer = 0; peer < num_ranks(); ++peer)
    if (is_awaited[static_cast<std::size_t>(peer)]) peers.push_back(peer);
  gate_.wait(Word::kMoved, combine.sequence, combine.sequence, peers);
  sum_staged_tokens(combine, 0, route.num_tokens,
                    arena_.base() + layout_.staging[combine.low_latency_ordinal % kBuffers]);
  count_combine(combine);
}

}  // namespace ferry::cpu
