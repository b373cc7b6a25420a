// Route: top-k ids to final rows. (1) count: each chunk of tokens by itself; (2) meet: one block
// sums the chunks, tells every peer, passes the gate and derives where rows start; (3) place: each
// chunk again, now that every start is known. Rows are in the order of source rank and token,
// whatever the schedule.
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

namespace ferry::cuda {

namespace {

constexpr int kChunk = RouteView::kChunkTokens;
constexpr int kCountThreads = 256;
constexpr int kMeetThreads = 1024;
constexpr std::uint32_t kNowhere = RouteView::kNowhere;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ __forceinline__ std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

__device__ __forceinline__ int owner_of(std::uint32_t home) { return static_cast<int>(home >> 16); }

__device__ __forceinline__ std::int64_t read_id(const TopkInput& topk, std::int64_t token, int k) {
  const std::int64_t at = token * topk.row_stride + k;
  return topk.is_int64 != 0 ? static_cast<const std::int64_t*>(topk.ids)[at]
                            : static_cast<const std::int32_t*>(topk.ids)[at];
}

// One warp per token, one lane per selection. Where a lane's selection goes, or kNowhere; invalid
// ones are noted.
__device__ std::uint32_t read_selection(const ExchangeView& exchange,
                                        const RouteView& route,
                                        const TopkInput& topk,
                                        std::int64_t token,
                                        int lane) {
  const bool is_column = lane < exchange.top_k;
  const std::int64_t id = is_column ? read_id(topk, token, lane) : -1;
  const bool is_valid = id >= 0 && id < exchange.num_experts;
  const bool is_out_of_range = !is_valid && id != -1;
  // Invalid and absent selections match nobody.
  const std::uint32_t key = is_valid ? static_cast<std::uint32_t>(id) : 0x80000000U + lane;
  const unsigned same = __match_any_sync(kAllLanes, key);
  const bool is_duplicate =
      is_valid && route.accepts_duplicates == 0 && (same & ((1U << lane) - 1)) != 0;
  if (is_out_of_range || is_duplicate)
    atomicMin(
        reinterpret_cast<unsigned long long*>(route.topk_fault),
        1ULL + static_cast<unsigned long long>(token) * 64 + lane * 2 + (is_duplicate ? 1 : 0));
  const std::uint32_t home = is_valid ? route.owners[id] : kNowhere;
  if (is_column) {
    route.topk[token * exchange.top_k + lane] = is_valid ? static_cast<std::int32_t>(id) : -1;
    route.home[token * exchange.top_k + lane] = home;
  }
  return home;
}

__global__ void __launch_bounds__(kCountThreads)
    count(const __grid_constant__ ExchangeView exchange,
          const __grid_constant__ RouteView route,
          const __grid_constant__ TopkInput topk) {
  extern __shared__ std::int32_t histogram[];  // [E + R]
  if (is_stopped(exchange)) return;
  const int num_columns = exchange.num_experts + exchange.num_ranks;
  for (int i = static_cast<int>(threadIdx.x); i < num_columns; i += kCountThreads) histogram[i] = 0;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  for (std::int64_t token = first + threadIdx.x / 32;
       token < least(first + kChunk, route.num_tokens); token += kCountThreads / 32) {
    const std::uint32_t home = read_selection(exchange, route, topk, token, lane);
    const bool is_selected = home != kNowhere;
    if (is_selected) atomicAdd(&histogram[route.topk[token * exchange.top_k + lane]], 1);
    // A token counts once for each rank that holds any of its experts.
    const unsigned same_rank = __match_any_sync(
        kAllLanes, is_selected ? static_cast<unsigned>(owner_of(home)) : 0x80000000U + lane);
    if (is_selected && (same_rank & ((1U << lane) - 1)) == 0)
      atomicAdd(&histogram[exchange.num_experts + owner_of(home)], 1);
  }
  __syncthreads();
  std::int32_t* out = route.chunk_counts + static_cast<std::int64_t>(blockIdx.x) * num_columns;
  for (int i = static_cast<int>(threadIdx.x); i < num_columns; i += kCountThreads)
    out[i] = histogram[i];
}

__device__ __forceinline__ std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The counts of all ranks, as they arrived in this rank's arena.
struct Counts {
  const std::byte* start;
  std::int64_t pitch;
  int num_experts;

  __device__ std::int64_t of_expert(int source, int expert) const {
    return reinterpret_cast<const volatile std::int32_t*>(start + source * pitch)[expert];
  }
  __device__ std::int64_t of_rank(int source, int rank) const {
    return of_expert(source, num_experts + rank);
  }
};

// Sums `count(source)` over sources below `end`.
template <typename Count>
__device__ std::int64_t sum_sources(int end, const Count& count_of) {
  std::int64_t sum = 0;
  for (int source = 0; source < end; ++source) sum += count_of(source);
  return sum;
}

// Where this rank's rows start at every destination, and what this rank receives (plan_bases and
// plan_receive of src/plan). `totals` [E] in shared memory. Returns whether the batch is refused.
__device__ bool plan_rows(const ExchangeView& exchange,
                          const RouteView& route,
                          const Counts& counts,
                          std::int32_t* totals,
                          std::int64_t* rows_of,
                          int* is_refused) {
  const int num_experts = exchange.num_experts;
  const int num_ranks = exchange.num_ranks;
  const int me = exchange.rank;
  const auto layout = static_cast<Layout>(route.layout);
  const std::int64_t padded_rows = num_ranks * route.max_tokens;
  const auto thread = static_cast<int>(threadIdx.x);
  std::int64_t* const num_rows = route.counts;
  std::int64_t* const expert_counts = route.counts + 1;
  std::int64_t* const aligned_counts = expert_counts + route.num_local;
  std::int64_t* const expert_offsets = aligned_counts + route.num_local;
  std::int64_t* const source_offsets = expert_offsets + route.num_local + 1;

  for (int expert = thread; expert < num_experts; expert += kMeetThreads)
    totals[expert] = static_cast<std::int32_t>(
        sum_sources(num_ranks, [&](int source) { return counts.of_expert(source, expert); }));
  for (int rank = thread; rank < num_ranks; rank += kMeetThreads) rows_of[rank] = 0;
  if (thread == 0) *is_refused = 0;
  __syncthreads();

  // Experts: the rows before each at its owner, in ascending id.
  for (int expert = thread; expert < num_experts; expert += kMeetThreads) {
    const int owner = owner_of(route.owners[expert]);
    const auto local = static_cast<int>(route.owners[expert] & 0xFFFF);
    const std::int64_t total = totals[expert];
    const std::int64_t aligned = align_up(total, route.expert_alignment);
    std::int64_t start = 0;
    if (layout == Layout::kPadded) {
      start = local * padded_rows;
      if (total > padded_rows) atomicExch(is_refused, 1);
    } else {
      for (int other = 0; other < expert; ++other)
        if (owner_of(route.owners[other]) == owner)
          start += layout == Layout::kByRank ? totals[other]
                                             : align_up(totals[other], route.expert_alignment);
    }
    if (layout != Layout::kByRank) {
      route.bases[expert] =
          start + sum_sources(me, [&](int source) { return counts.of_expert(source, expert); });
      if (layout == Layout::kByExpert)
        atomicAdd(reinterpret_cast<unsigned long long*>(&rows_of[owner]),
                  static_cast<unsigned long long>(aligned));
    }
    if (owner != me) continue;
    const bool is_capped = layout == Layout::kByExpert;
    const std::int64_t first = is_capped ? least(start, route.row_cap) : start;
    const std::int64_t end = is_capped ? least(start + aligned, route.row_cap) : start + aligned;
    expert_counts[local] = is_capped ? least(total, end - first) : total;
    aligned_counts[local] = is_capped ? end - first : aligned;
    expert_offsets[local] = first;
    if (local == route.num_local - 1)
      expert_offsets[local + 1] = layout == Layout::kPadded   ? start + padded_rows
                                  : layout == Layout::kByRank ? start + total
                                                              : end;
  }
  if (layout == Layout::kByRank)
    for (int rank = thread; rank < num_ranks; rank += kMeetThreads) {
      route.bases[rank] = sum_sources(me, [&](int source) { return counts.of_rank(source, rank); });
      rows_of[rank] =
          sum_sources(num_ranks, [&](int source) { return counts.of_rank(source, rank); });
    }
  if (route.num_local == 0 && thread == 0) expert_offsets[0] = 0;
  __syncthreads();

  if (layout != Layout::kPadded)
    for (int rank = thread; rank < num_ranks; rank += kMeetThreads)
      if (rows_of[rank] > route.row_cap && route.is_overflow_error != 0) atomicExch(is_refused, 1);
  if (thread == 0) {
    *num_rows = layout == Layout::kPadded ? route.num_local * padded_rows
                                          : least(rows_of[me], route.row_cap);
    std::int64_t offset = 0;
    for (int source = 0; source <= num_ranks; ++source) {
      source_offsets[source] = layout == Layout::kByRank ? least(offset, route.row_cap) : 0;
      if (source < num_ranks) offset += counts.of_rank(source, me);
    }
  }
  __syncthreads();
  return *is_refused != 0;
}

// The lowest rank with an invalid selection, or -1.
__device__ int find_faulty_rank(const ExchangeView& exchange, std::uint64_t sequence) {
  for (int rank = 0; rank < exchange.num_ranks; ++rank)
    if (heard(said_by(exchange, sequence, rank), GateSlot::kTopkFault) != 0) return rank;
  return -1;
}

// Turns one column's counts of all chunks into the sums before each; returns the total. Eight loads
// are in flight at a time.
__device__ std::int32_t sum_chunks(std::int32_t* counts, int pitch, int num_chunks) {
  constexpr int kUnroll = 8;
  std::int32_t sum = 0;
  for (int first = 0; first < num_chunks; first += kUnroll) {
    std::int32_t values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
      values[i] = first + i < num_chunks ? counts[static_cast<std::int64_t>(first + i) * pitch] : 0;
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i >= num_chunks) continue;
      counts[static_cast<std::int64_t>(first + i) * pitch] = sum;
      sum += values[i];
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kMeetThreads, 1)
    meet(const __grid_constant__ ExchangeView exchange,
         const __grid_constant__ RouteView route,
         const __grid_constant__ TopkInput topk,
         const __grid_constant__ GateArgs gate,
         int num_chunks) {
  extern __shared__ std::int32_t totals[];  // [E]
  __shared__ std::int64_t rows_of[kMostPeers];
  __shared__ int is_refused;
  __shared__ GateArgs own;
  if (is_stopped(exchange)) return;
  const int num_columns = exchange.num_experts + exchange.num_ranks;
  const std::uint64_t sequence = exchange.state->sequence + 1;
  const std::int64_t own_counts =
      exchange.gate.counts +
      (static_cast<std::int64_t>(sequence % HeardSlot::kRing) * exchange.num_ranks +
       exchange.rank) *
          exchange.gate.counts_pitch;
  for (int column = static_cast<int>(threadIdx.x); column < num_columns; column += kMeetThreads) {
    const std::int32_t sum = sum_chunks(route.chunk_counts + column, num_columns, num_chunks);
    for (int peer = 0; peer < exchange.num_ranks; ++peer)
      reinterpret_cast<std::int32_t*>(exchange.peer_base[peer] + own_counts)[column] = sum;
  }
  if (threadIdx.x == 0) {
    own = gate;
    const std::uint64_t fault = *route.topk_fault;
    if (fault != ~0ULL) {
      own.slot.words[GateSlot::kTopkFault] = fault;
      own.slot.words[GateSlot::kTopkExpert] =
          static_cast<std::uint64_t>(read_id(topk, static_cast<std::int64_t>((fault - 1) / 64),
                                             static_cast<int>((fault - 1) % 64 / 2)));
    }
  }
  __syncthreads();
  bool is_route_refused = false;
  if (!pass_gate(exchange, own, &is_route_refused)) return;

  const Counts counts{reinterpret_cast<const std::byte*>(exchange.arena) + exchange.gate.counts +
                          static_cast<std::int64_t>(sequence % HeardSlot::kRing) *
                              exchange.num_ranks * exchange.gate.counts_pitch,
                      exchange.gate.counts_pitch, exchange.num_experts};
  const bool is_batch_refused = plan_rows(exchange, route, counts, totals, rows_of, &is_refused);

  RouteAnswer& answer = *route.answer;
  auto* answer_counts = reinterpret_cast<std::int32_t*>(&answer + 1);
  for (int i = static_cast<int>(threadIdx.x); i < exchange.num_ranks * num_columns;
       i += kMeetThreads)
    answer_counts[i] =
        static_cast<std::int32_t>(counts.of_expert(i / num_columns, i % num_columns));
  if (threadIdx.x == 0) {
    answer.is_refused = is_route_refused ? 1 : 0;
    answer.fault_rank = find_faulty_rank(exchange, sequence);
    answer.topk_fault = 0;
    if (answer.fault_rank >= 0) {
      const HeardSlot& said = said_by(exchange, sequence, answer.fault_rank);
      answer.topk_fault = heard(said, GateSlot::kTopkFault);
      answer.topk_expert = static_cast<std::int64_t>(heard(said, GateSlot::kTopkExpert));
    }
    *route.has_error = is_route_refused || answer.fault_rank >= 0 || is_batch_refused ? 1U : 0U;
  }
  __threadfence_system();
  __syncthreads();
  // Pairs with the host's acquire load: it then reads the whole answer.
  if (threadIdx.x == 0) store_release(&answer.ticket, route.ticket);
}

// Ranks of a chunk's tokens as bits, for counting the tokens before one that share a rank.
constexpr int kRankWords = kMostPeers / 32;

__device__ int count_bits_below(const unsigned* words, int bit) {
  int count = 0;
  for (int word = 0; word < bit / 32; ++word) count += __popc(words[word]);
  return count + __popc(words[bit / 32] & ((1U << bit % 32) - 1));
}

__global__ void __launch_bounds__(kCountThreads)
    place(const __grid_constant__ ExchangeView exchange, const __grid_constant__ RouteView route) {
  __shared__ unsigned ranks_of[kChunk][kRankWords];
  __shared__ std::int16_t experts_of[kChunk * 32];
  if (is_idle(exchange) || *route.has_error != 0) return;
  const int top_k = exchange.top_k;
  const int num_columns = exchange.num_experts + exchange.num_ranks;
  const auto layout = static_cast<Layout>(route.layout);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const auto num_tokens = static_cast<int>(least(kChunk, route.num_tokens - first));
  const std::int32_t* prefix =
      route.chunk_counts + static_cast<std::int64_t>(blockIdx.x) * num_columns;

  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kRankWords; i += kCountThreads)
    ranks_of[i / kRankWords][i % kRankWords] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num_tokens * top_k; i += kCountThreads) {
    const std::uint32_t home = route.home[first * top_k + i];
    experts_of[i] = static_cast<std::int16_t>(route.topk[first * top_k + i]);
    if (home == kNowhere) continue;
    atomicOr(&ranks_of[i / top_k][owner_of(home) / 32], 1U << owner_of(home) % 32);
  }
  __syncthreads();

  for (int t = warp; t < num_tokens; t += kCountThreads / 32) {
    const std::int64_t token = first + t;
    const std::uint32_t home = lane < top_k ? route.home[token * top_k + lane] : kNowhere;
    const bool is_selected = home != kNowhere;
    const int rank = is_selected ? owner_of(home) : 0x10000 + lane;
    const unsigned same_rank = __match_any_sync(kAllLanes, rank);
    bool is_row = is_selected;
    std::int64_t row = 0;
    int slot = 0;
    int highest_k = lane;
    if (layout == Layout::kByRank) {
      is_row = is_selected && (same_rank & ((1U << lane) - 1)) == 0;
      highest_k = 31 - __clz(static_cast<int>(same_rank));
      if (is_row) {
        int earlier = 0;
        for (int other = 0; other < t; ++other)
          earlier += static_cast<int>(ranks_of[other][rank / 32] >> (rank % 32) & 1U);
        row = route.bases[rank] + prefix[exchange.num_experts + rank] + earlier;
        slot = count_bits_below(ranks_of[t], rank);
      }
    } else if (is_row) {
      const std::int16_t expert = experts_of[t * top_k + lane];
      int earlier = 0;
      for (int other = 0; other < t * top_k + lane; ++other)
        earlier += experts_of[other] == expert ? 1 : 0;
      row = route.bases[expert] + prefix[expert] + earlier;
    }
    const bool is_kept = is_row && (layout == Layout::kPadded || row < route.row_cap);
    const unsigned kept = __ballot_sync(kAllLanes, is_kept);
    // Place in the token's list: by rank, then k; or by highest k.
    int place_in_list = 0;
    for (int other = 0; other < top_k; ++other) {
      const int other_rank = __shfl_sync(kAllLanes, rank, other);
      const int other_k = __shfl_sync(kAllLanes, highest_k, other);
      if ((kept >> other & 1U) == 0 || other == lane) continue;
      const bool is_before = route.is_by_highest_k != 0
                                 ? other_k < highest_k
                                 : other_rank < rank || (other_rank == rank && other < lane);
      place_in_list += is_before ? 1 : 0;
    }
    if (layout != Layout::kByRank) {
      const unsigned same_list = same_rank & kept;
      slot = __shfl_sync(kAllLanes, place_in_list,
                         same_list != 0 ? __ffs(static_cast<int>(same_list)) - 1 : 0);
    }
    if (is_kept)
      route.entries[token * top_k + place_in_list] = {
          static_cast<std::uint32_t>(row), static_cast<std::uint16_t>(rank),
          static_cast<std::uint8_t>(slot), static_cast<std::uint8_t>(highest_k)};
    if (lane == 0) route.num_entries[token] = __popc(kept);
  }
}

}  // namespace

cudaError_t launch_route(const ExchangeView& exchange,
                         const RouteView& route,
                         const TopkInput& topk,
                         const OpenGate& gate,
                         cudaStream_t stream) {
  const auto num_chunks = static_cast<int>((route.num_tokens + kChunk - 1) / kChunk);
  const auto num_columns = static_cast<unsigned>(exchange.num_experts + exchange.num_ranks);
  const GateArgs args{gate.slot, nullptr, gate.operation_slot, 0, &route.answer->refusal, nullptr};
  if (const cudaError_t error =
          cudaMemsetAsync(route.topk_fault, 0xFF, sizeof(std::uint64_t), stream);
      error != cudaSuccess)
    return error;
  if (num_chunks > 0)
    count<<<static_cast<unsigned>(num_chunks), kCountThreads, num_columns * 4, stream>>>(
        exchange, route, topk);
  meet<<<1, kMeetThreads, static_cast<unsigned>(exchange.num_experts) * 4, stream>>>(
      exchange, route, topk, args, num_chunks);
  if (num_chunks > 0)
    place<<<static_cast<unsigned>(num_chunks), kCountThreads, 0, stream>>>(exchange, route);
  return cudaGetLastError();
}

cudaError_t prepare_route_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel :
       {reinterpret_cast<const void*>(&count), reinterpret_cast<const void*>(&meet),
        reinterpret_cast<const void*>(&place)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
