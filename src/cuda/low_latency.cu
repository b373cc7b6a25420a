// Low latency: gate, move and gate in one kernel, for operations so small that launches would
// dominate. Every block waits for the peers' words by itself, having read (and quantised) its first
// tokens meanwhile; the last block to finish says so, and waits for the others. It says the same
// words as the separate kernels, so ranks may differ in which they use. Waiting blocks hold
// multiprocessors: see Engine::check_residency.
#include "cuda/complete.cuh"
#include "cuda/entries.cuh"
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "cuda/metadata.cuh"
#include "cuda/row_transforms.cuh"
#include "cuda/sum_rows.cuh"
#include "ferry/exchange.hpp"

namespace ferry::cuda {

namespace {

constexpr int kTeamWarps = LowLatencyLaunch::kTeamWarps;  // that share one token of a dispatch
constexpr int kTeamLanes = kTeamWarps * 32;
constexpr int kHeld = LowLatencyLaunch::kHeldPieces;  // pieces of a row in a lane's registers
constexpr int kDispatchThreads = LowLatencyLaunch::kMostTeams * kTeamLanes;
constexpr int kCombineThreads = LowLatencyLaunch::kCombineWarps * 32;

// The beginning: block 0 says this rank's words, all read ahead. Without a fence: nothing of this
// kernel comes before them, and stores of earlier kernels are complete when it starts.
__device__ __forceinline__ std::uint64_t begin(const ExchangeView& exchange,
                                               const GateArgs& args,
                                               Meeting& meeting) {
  const std::uint64_t sequence = exchange.state->sequence + 1;
  if (blockIdx.x == 0) say(exchange, args.slot, sequence);
  prepare_meeting(exchange, args, meeting);
  return sequence;
}

// Waits for the peers' words. Whole block.
__device__ __forceinline__ Verdict arrive(const ExchangeView& exchange,
                                          const GateArgs& args,
                                          std::uint64_t sequence,
                                          Meeting& meeting) {
  __syncthreads();
  if (meeting.is_stopped != 0) return {true, exchange.num_ranks, false};
  const Verdict verdict = hear(exchange, meeting, sequence);
  if (blockIdx.x == 0 && verdict.refusing < exchange.num_ranks)
    note_refusal(exchange, args, sequence, verdict.refusing);
  return verdict;
}

// The end: every block says that its part is complete; block 0 waits for this rank's own, which
// have then all read the state, and where asked to for all ranks'. Whole block.
__device__ __forceinline__ void leave(const ExchangeView& exchange,
                                      const LowLatencyGate& gate,
                                      const GateArgs& args,
                                      const Verdict& verdict,
                                      std::uint64_t sequence) {
  __syncthreads();
  announce(exchange, sequence, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  if (blockIdx.x != 0) return;
  const PeerRange awaited = gate.waits != 0 ? PeerRange{0, exchange.num_ranks}
                                            : PeerRange{exchange.rank, exchange.rank + 1};
  wait_done(exchange, sequence, gate.operation, awaited);
  __syncthreads();
  if (threadIdx.x == 0) enter_operation(exchange, args, verdict, sequence);
}

// --- dispatch ----------------------------------------------------------------------------------

struct Team {
  int index;  // in the block
  int warp;   // in the team
  int lane;   // in the warp
  int place;  // of the lane in the team
};

__device__ __forceinline__ Team my_team() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {warp / kTeamWarps, warp % kTeamWarps, lane, warp % kTeamWarps * 32 + lane};
}

__device__ __forceinline__ void synchronize(const Team& team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team.index + 1), "r"(kTeamLanes) : "memory");
}

// A token's row as its team holds it: 16 bytes at a time, as delivered.
template <int kTransform>
struct HeldRow {
  // Of codes, two pieces of x make one.
  static constexpr int kPieces = kTransform == kCopy ? kHeld : kHeld / 2;
  uint4 pieces[kPieces];
};

// Scales of a quantised row go to `scales` in shared memory, whole words, the rest of the last one
// zero.
template <bool kIsUe8m0>
__device__ void read_quantized(const DispatchView& dispatch,
                               std::int64_t token,
                               const Team& team,
                               unsigned char* scales,
                               uint4 (&codes)[kHeld / 2]) {
  const auto* from = reinterpret_cast<const uint4*>(dispatch.x + token * dispatch.x_pitch);
  const auto num_pairs = static_cast<int>(dispatch.hidden / (2 * kPieceChannels));
  constexpr int kPairsPerGroup = static_cast<int>(kQuantizeGroup) / (2 * kPieceChannels);
  uint4 pairs[kHeld / 2][2];
#pragma unroll
  for (int i = 0; i < kHeld / 2; ++i) {
    const int at = i * kTeamLanes + team.place;
    for (int j = 0; j < 2; ++j)
      pairs[i][j] = at < num_pairs ? from[2 * at + j] : make_uint4(0, 0, 0, 0);
  }
  if constexpr (kIsUe8m0) {
    if (team.place == 0) reinterpret_cast<std::uint32_t*>(scales)[dispatch.scale_bytes / 4 - 1] = 0;
    synchronize(team);
  }
#pragma unroll
  for (int i = 0; i < kHeld / 2; ++i) {
    const int at = i * kTeamLanes + team.place;
    const QuantizedPieces<2> row = quantize<kIsUe8m0>(pairs[i]);
    codes[i] = make_uint4(row.codes[0].x, row.codes[0].y, row.codes[1].x, row.codes[1].y);
    if (at >= num_pairs || at % kPairsPerGroup != 0) continue;
    if constexpr (kIsUe8m0)
      scales[at / kPairsPerGroup] = static_cast<unsigned char>(row.scale_word);
    else
      reinterpret_cast<std::uint32_t*>(scales)[at / kPairsPerGroup] = row.scale_word;
  }
}

template <int kTransform>
__device__ void read_row(const DispatchView& dispatch,
                         std::int64_t token,
                         const Team& team,
                         unsigned char* scales,
                         HeldRow<kTransform>& row) {
  if constexpr (kTransform != kCopy) {
    read_quantized<kTransform == kQuantizeUe8m0>(dispatch, token, team, scales, row.pieces);
  } else {
    const auto* from = reinterpret_cast<const uint4*>(dispatch.x + token * dispatch.x_pitch);
    const auto num_pieces = static_cast<int>(dispatch.row_bytes / 16);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (const int at = i * kTeamLanes + team.place; at < num_pieces) row.pieces[i] = from[at];
  }
}

// The row to each of its places, and its scales.
template <int kTransform>
__device__ void write_row(const DispatchView& dispatch,
                          const Target* targets,
                          const Entries& entries,
                          const Team& team,
                          const unsigned char* scales,
                          const HeldRow<kTransform>& row) {
  const int num_pieces = static_cast<int>(dispatch.row_bytes / 16);
#pragma unroll 1
  for (int index = 0; index < entries.count; ++index) {
    const RowEntry entry = entry_of(entries, index);
    if (!is_sent(dispatch, entry, index)) continue;
    auto* to = reinterpret_cast<uint4*>(targets[entry.rank].rows + entry.row * dispatch.row_bytes);
#pragma unroll
    for (int i = 0; i < HeldRow<kTransform>::kPieces; ++i)
      if (const int at = i * kTeamLanes + team.place; at < num_pieces) to[at] = row.pieces[i];
  }
  if constexpr (kTransform != kCopy) {
    const auto scale_bytes = static_cast<int>(dispatch.scale_bytes);
    const int width = scale_bytes % 16 == 0 ? 16 : 4;
    const int per_row = scale_bytes / width;
    const Inverse inverse(per_row);
#pragma unroll 1
    for (int first = team.warp * 32; first < entries.count * per_row; first += kTeamLanes) {
      const int piece = first + team.lane;
      const int index = inverse.quotient(piece);
      const RowEntry entry = entry_of(entries, min(index, entries.count - 1));
      if (piece >= entries.count * per_row || !is_sent(dispatch, entry, index)) continue;
      const int at = (piece - index * per_row) * width;
      std::byte* to = targets[entry.rank].scales + entry.row * dispatch.scale_bytes + at;
      if (width == 16)
        store(to, *reinterpret_cast<const uint4*>(scales + at));
      else
        store(to, *reinterpret_cast<const std::uint32_t*>(scales + at));
    }
  }
}

template <int kTransform>
__global__ void __launch_bounds__(kDispatchThreads, 1)
    dispatch_at_once(const __grid_constant__ ExchangeView exchange,
                     const __grid_constant__ RouteView route,
                     const __grid_constant__ DispatchView dispatch,
                     const __grid_constant__ GateArgs args,
                     const __grid_constant__ LowLatencyGate gate) {
  extern __shared__ __align__(16) unsigned char scales_of_teams[];
  __shared__ Target targets[kMostPeers];
  __shared__ Meeting meeting;
  const std::uint64_t sequence = begin(exchange, args, meeting);
  const Team team = my_team();
  const int num_teams = static_cast<int>(blockDim.x) / kTeamLanes;
  unsigned char* const scales =
      scales_of_teams + team.index * LowLatencyLaunch::scale_stage(dispatch.scale_bytes);
  const Metadata metadata(exchange, route, dispatch);
  Verdict verdict;
  bool has_arrived = false;
  // All teams come by at least once, since the block waits for the peers together.
#pragma unroll 1
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * num_teams + team.index;
       token < route.num_tokens || !has_arrived;
       token += static_cast<std::int64_t>(gridDim.x) * num_teams) {
    const bool is_token = token < route.num_tokens;
    HeldRow<kTransform> row;
    if (is_token) read_row<kTransform>(dispatch, token, team, scales, row);
    const Entries entries = read_entries(exchange, route, token, team.lane);
    if (!has_arrived) {
      has_arrived = true;
      verdict = arrive(exchange, args, sequence, meeting);
      if (verdict.has_failed) return;
      if (verdict.is_refused(exchange)) break;
      for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
           peer += static_cast<int>(blockDim.x))
        targets[peer] = target_of(meeting.bases[peer], [&](GateSlot::Word word) {
          return meeting.grants[peer][word - Meeting::kFirstGrant];
        });
      __syncthreads();
    } else {
      synchronize(team);  // all have written the scales
    }
    if (!is_token) break;
    write_row<kTransform>(dispatch, targets, entries, team, scales, row);
    metadata.write(targets, token, entries, team.lane, team.warp, kTeamWarps);
    synchronize(team);  // all have read them
  }
  if (!verdict.is_refused(exchange)) {
    complete_metadata(exchange, route, dispatch);
    if (dispatch.complete.zeroes_gaps != 0) zero_gaps(route, dispatch.complete);
  }
  leave(exchange, gate, args, verdict, sequence);
}

template <int kTransform>
void launch_at_once(const ExchangeView& exchange,
                    const RouteView& route,
                    const DispatchView& dispatch,
                    const GateArgs& args,
                    const LowLatencyGate& gate,
                    const LowLatencyLaunch& launch,
                    cudaStream_t stream) {
  const std::int64_t shared_bytes =
      launch.num_teams * LowLatencyLaunch::scale_stage(dispatch.scale_bytes);
  dispatch_at_once<kTransform>
      <<<static_cast<unsigned>(launch.num_blocks),
         static_cast<unsigned>(launch.num_teams * kTeamLanes),
         static_cast<std::size_t>(kTransform == kCopy ? 0 : shared_bytes), stream>>>(
          exchange, route, dispatch, args, gate);
}

// --- combine -----------------------------------------------------------------------------------

template <DType kDType, bool kIsWeighted>
__global__ void __launch_bounds__(kCombineThreads, 1)
    combine_at_once(const __grid_constant__ ExchangeView exchange,
                    const __grid_constant__ RouteView route,
                    const __grid_constant__ CombineView combine,
                    const __grid_constant__ GateArgs args,
                    const __grid_constant__ LowLatencyGate gate) {
  constexpr int kWarpsPerToken = 2;
  __shared__ Source sources[kMostPeers];
  __shared__ Meeting meeting;
  const std::uint64_t sequence = begin(exchange, args, meeting);
  const Verdict verdict = arrive(exchange, args, sequence, meeting);
  if (verdict.has_failed) return;
  if (!verdict.is_refused(exchange)) {
    for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
         peer += static_cast<int>(blockDim.x))
      sources[peer] = source_of(meeting.bases[peer], [&](GateSlot::Word word) {
        return meeting.grants[peer][word - Meeting::kFirstGrant];
      });
    __syncthreads();
    sum_rows<kDType, kIsWeighted, kWarpsPerToken, 2>(exchange, route, combine, sources);
  }
  leave(exchange, gate, args, verdict, sequence);
}

template <DType kDType>
void launch_sum_at_once(const ExchangeView& exchange,
                        const RouteView& route,
                        const CombineView& combine,
                        const GateArgs& args,
                        const LowLatencyGate& gate,
                        int num_blocks,
                        cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(num_blocks);
  if (combine.topk_weights != nullptr)
    combine_at_once<kDType, true>
        <<<blocks, kCombineThreads, 0, stream>>>(exchange, route, combine, args, gate);
  else
    combine_at_once<kDType, false>
        <<<blocks, kCombineThreads, 0, stream>>>(exchange, route, combine, args, gate);
}

}  // namespace

cudaError_t launch_dispatch_at_once(const ExchangeView& exchange,
                                    const RouteView& route,
                                    const DispatchView& dispatch,
                                    const OpenGate& open,
                                    const LowLatencyGate& gate,
                                    const LowLatencyLaunch& launch,
                                    cudaStream_t stream) {
  const GateArgs args = gate_args(exchange, open);
  switch (dispatch.transform) {
    case kQuantizeFp32:
      launch_at_once<kQuantizeFp32>(exchange, route, dispatch, args, gate, launch, stream);
      break;
    case kQuantizeUe8m0:
      launch_at_once<kQuantizeUe8m0>(exchange, route, dispatch, args, gate, launch, stream);
      break;
    default: launch_at_once<kCopy>(exchange, route, dispatch, args, gate, launch, stream); break;
  }
  return cudaGetLastError();
}

cudaError_t launch_combine_at_once(const ExchangeView& exchange,
                                   const RouteView& route,
                                   const CombineView& combine,
                                   const OpenGate& open,
                                   const LowLatencyGate& gate,
                                   int num_blocks,
                                   cudaStream_t stream) {
  const GateArgs args = gate_args(exchange, open);
  switch (static_cast<DType>(combine.dtype)) {
    case DType::kFp16:
      launch_sum_at_once<DType::kFp16>(exchange, route, combine, args, gate, num_blocks, stream);
      break;
    case DType::kFp32:
      launch_sum_at_once<DType::kFp32>(exchange, route, combine, args, gate, num_blocks, stream);
      break;
    default:
      launch_sum_at_once<DType::kBf16>(exchange, route, combine, args, gate, num_blocks, stream);
      break;
  }
  return cudaGetLastError();
}

cudaError_t prepare_low_latency_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&dispatch_at_once<kCopy>),
                             reinterpret_cast<const void*>(&dispatch_at_once<kQuantizeFp32>),
                             reinterpret_cast<const void*>(&dispatch_at_once<kQuantizeUe8m0>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kBf16, false>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kBf16, true>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kFp16, false>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kFp16, true>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kFp32, false>),
                             reinterpret_cast<const void*>(&combine_at_once<DType::kFp32, true>)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
