// Dispatch, the sending half. Each warp takes the next token, brings its row into shared memory
// once by the bulk copy engine and stores it from there to every destination's final row; the lanes
// write what stands beside it. Where there is no such engine, or rows change on the way, rows go
// through registers.
#include "cuda/bulk_copy.cuh"
#include "cuda/complete.cuh"
#include "cuda/entries.cuh"
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "cuda/metadata.cuh"
#include "cuda/row_transforms.cuh"
#include "ferry/exchange.hpp"

namespace ferry::cuda {

namespace {

constexpr int kMostWarps = 16;
[[maybe_unused]] constexpr int kStages = 2;  // the copy engine's: one row arrives, one leaves

// Tokens are taken as warps come free, which evens out multiprocessors that share a path to memory.
// Drawn by the first lane, known to all once shared: so that the draw can be under way meanwhile.
__device__ __forceinline__ std::uint32_t draw_token(const ExchangeView& exchange, int lane) {
  return lane == 0 ? atomicAdd(&exchange.state->next_piece, 1U) : 0U;
}

__device__ __forceinline__ std::int64_t share_token(std::uint32_t drawn) {
  return __shfl_sync(kAllLanes, drawn, 0);
}

__device__ __forceinline__ std::int64_t take_token(const ExchangeView& exchange, int lane) {
  return share_token(draw_token(exchange, lane));
}

#if __CUDA_ARCH__ >= 900
__device__ void move_in_bulk(const ExchangeView& exchange,
                             const RouteView& route,
                             const DispatchView& dispatch,
                             const Target* targets,
                             const Metadata& metadata,
                             unsigned char* stages,
                             std::uint64_t* barriers) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto row_bytes = static_cast<std::uint32_t>(dispatch.row_bytes);
  const std::uint32_t stage_bytes = (row_bytes + 127) / 128 * 128;
  const std::uint32_t stage0 = shared_address(stages) + warp * kStages * stage_bytes;
  const std::uint32_t barrier0 = shared_address(barriers + warp * kStages);
  if (lane == 0) {
    for (int stage = 0; stage < kStages; ++stage) init_barrier(barrier0 + stage * 8);
    fence_barrier_init();
  }
  __syncwarp();

  const auto load = [&](int stage, std::int64_t token) {
    if (lane != 0 || token >= route.num_tokens) return;
    const std::uint32_t barrier = barrier0 + stage * 8;
    expect_bytes(barrier, row_bytes);
    bulk_load(stage0 + stage * stage_bytes, dispatch.x + token * dispatch.x_pitch, row_bytes,
              barrier);
  };
  std::uint32_t parities = 0;
  int stage = 0;
  std::int64_t token = take_token(exchange, lane);
  std::int64_t next = take_token(exchange, lane);
  load(0, token);
  Entries entries = read_entries(exchange, route, token, lane);
  while (token < route.num_tokens) {
    // Everything of the next token is under way while this one's row leaves.
    const std::uint32_t drawn = draw_token(exchange, lane);
    const Entries next_entries = read_entries(exchange, route, next, lane);
    // The other stage's rows must have left it before the next row comes in.
    wait_stores_read();
    __syncwarp();
    load(stage ^ 1, next);
    wait_barrier(barrier0 + stage * 8, parities >> stage & 1U);
    parities ^= 1U << stage;
    if (lane < entries.count && is_sent(dispatch, entries.own, lane))
      bulk_store(targets[entries.own.rank].rows + entries.own.row * dispatch.row_bytes,
                 stage0 + stage * stage_bytes, row_bytes);
    commit_stores();
    metadata.write(targets, token, entries, lane);
    token = next;
    entries = next_entries;
    next = share_token(drawn);
    stage ^= 1;
  }
  wait_stores();
}
#endif

// Rows through registers, 16 bytes a lane and step.
template <bool kIsScaled>
__device__ void move_by_registers(const ExchangeView& exchange,
                                  const RouteView& route,
                                  const DispatchView& dispatch,
                                  const Target* targets,
                                  const Metadata& metadata) {
  constexpr int kUnroll = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto num_pieces = static_cast<int>(dispatch.row_bytes / 16);
  for (std::int64_t token = take_token(exchange, lane); token < route.num_tokens;
       token = take_token(exchange, lane)) {
    const Entries entries = read_entries(exchange, route, token, lane);
    metadata.write(targets, token, entries, lane);
    const auto* from = reinterpret_cast<const uint4*>(dispatch.x + token * dispatch.x_pitch);
    for (int first = 0; first < num_pieces; first += 32 * kUnroll) {
      uint4 pieces[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (const int at = first + u * 32 + lane; at < num_pieces) pieces[u] = from[at];
      for (int index = 0; index < entries.count; ++index) {
        const RowEntry entry = entry_of(entries, index);
        if (!is_sent(dispatch, entry, index)) continue;
        auto* to =
            reinterpret_cast<uint4*>(targets[entry.rank].rows + entry.row * dispatch.row_bytes);
        const float weight = kIsScaled ? weight_of(dispatch, token, entry.k) : 0.0F;
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
          if (const int at = first + u * 32 + lane; at < num_pieces)
            to[at] = kIsScaled ? scale_piece(pieces[u], weight, static_cast<DType>(dispatch.dtype))
                               : pieces[u];
      }
    }
  }
}

template <bool kIsUe8m0>
__device__ void move_quantized(const ExchangeView& exchange,
                               const RouteView& route,
                               const DispatchView& dispatch,
                               const Target* targets,
                               const Metadata& metadata) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto num_pieces = static_cast<int>(dispatch.hidden / 8);
  for (std::int64_t token = take_token(exchange, lane); token < route.num_tokens;
       token = take_token(exchange, lane)) {
    const Entries entries = read_entries(exchange, route, token, lane);
    metadata.write(targets, token, entries, lane);
    const auto* from = reinterpret_cast<const uint4*>(dispatch.x + token * dispatch.x_pitch);
    for (int first = 0; first < num_pieces; first += 32) {
      const int at = first + lane;
      const bool is_inside = at < num_pieces;
      const uint4 bf16[1] = {is_inside ? from[at] : make_uint4(0, 0, 0, 0)};
      const QuantizedPieces<1> piece = quantize<kIsUe8m0>(bf16);
      for (int index = 0; index < entries.count; ++index) {
        const RowEntry entry = entry_of(entries, index);
        if (!is_sent(dispatch, entry, index)) continue;
        const Target& target = targets[entry.rank];
        if (is_inside) store(target.rows + entry.row * dispatch.row_bytes + at * 8, piece.codes[0]);
        const std::int64_t group = at * 8 / kQuantizeGroup;
        if (!is_inside || at % 16 != 0) continue;
        std::byte* scales = target.scales + entry.row * dispatch.scale_bytes;
        if constexpr (kIsUe8m0)
          store(scales + group, static_cast<std::uint8_t>(piece.scale_word));
        else
          store(scales + group * 4, piece.scale_word);
      }
    }
    if constexpr (kIsUe8m0) {
      // Bytes of the last word beyond the last group are zero.
      const std::int64_t num_groups = (dispatch.hidden + kQuantizeGroup - 1) / kQuantizeGroup;
      for (int index = 0; index < entries.count; ++index) {
        const RowEntry entry = entry_of(entries, index);
        if (!is_sent(dispatch, entry, index)) continue;
        std::byte* scales = targets[entry.rank].scales + entry.row * dispatch.scale_bytes;
        if (num_groups + lane < dispatch.scale_bytes)
          store(scales + num_groups + lane, std::uint8_t{0});
      }
    }
  }
}

#if __CUDA_ARCH__ >= 900
// The row comes into shared memory by the copy engine, is quantised there by its warp, and leaves
// the same way: read once, converted once, whatever the number of destinations. One row arrives
// while the one before leaves.
template <bool kIsUe8m0>
__device__ void quantize_in_bulk(const ExchangeView& exchange,
                                 const RouteView& route,
                                 const DispatchView& dispatch,
                                 const Target* targets,
                                 const Metadata& metadata,
                                 unsigned char* stages,
                                 std::uint64_t* barriers) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const QuantizeStage stage = quantize_stage(dispatch.hidden, dispatch.scale_bytes);
  unsigned char* const in = stages + warp * stage.bytes;
  unsigned char* const codes = in + stage.codes;
  unsigned char* const scales = in + stage.scales;
  const std::uint32_t barrier = shared_address(barriers + warp);
  const auto in_bytes = static_cast<std::uint32_t>(2 * dispatch.hidden);
  const auto row_bytes = static_cast<std::uint32_t>(dispatch.row_bytes);
  const auto scale_bytes = static_cast<std::uint32_t>(dispatch.scale_bytes);
  const bool has_wide_scales = scale_bytes % 16 == 0;
  const auto num_pieces = static_cast<int>(dispatch.hidden / 8);
  if (lane == 0) {
    init_barrier(barrier);
    fence_barrier_init();
  }
  __syncwarp();
  const auto load = [&](std::int64_t token) {
    if (lane != 0 || token >= route.num_tokens) return;
    expect_bytes(barrier, in_bytes);
    bulk_load(shared_address(in), dispatch.x + token * dispatch.x_pitch, in_bytes, barrier);
  };
  std::uint32_t parity = 0;
  std::int64_t token = take_token(exchange, lane);
  load(token);
  while (token < route.num_tokens) {
    const Entries entries = read_entries(exchange, route, token, lane);
    const std::uint32_t drawn = draw_token(exchange, lane);
    // The row before must have left before its place is written again.
    wait_stores_read();
    __syncwarp();
    wait_barrier(barrier, parity);
    parity ^= 1;
    if constexpr (kIsUe8m0) {
      // Bytes of the last word beyond the last group are zero.
      for (int i = lane; i < static_cast<int>(scale_bytes) / 4; i += 32)
        reinterpret_cast<std::uint32_t*>(scales)[i] = 0;
      __syncwarp();
    }
    for (int first = 0; first < num_pieces; first += 32) {
      const int at = first + lane;
      const bool is_inside = at < num_pieces;
      const uint4 bf16[1] = {is_inside ? reinterpret_cast<const uint4*>(in)[at]
                                       : make_uint4(0, 0, 0, 0)};
      const QuantizedPieces<1> piece = quantize<kIsUe8m0>(bf16);
      if (is_inside) reinterpret_cast<uint2*>(codes)[at] = piece.codes[0];
      if (!is_inside || at % 16 != 0) continue;
      if constexpr (kIsUe8m0)
        scales[at / 16] = static_cast<unsigned char>(piece.scale_word);
      else
        reinterpret_cast<std::uint32_t*>(scales)[at / 16] = piece.scale_word;
    }
    // The lanes' writes before the copy engine's reads, their reads before its next write.
    fence_proxy();
    __syncwarp();
    const std::int64_t next = share_token(drawn);
    load(next);
    if (lane < entries.count && is_sent(dispatch, entries.own, lane)) {
      const Target& target = targets[entries.own.rank];
      const std::int64_t row = entries.own.row;
      bulk_store(target.rows + row * dispatch.row_bytes, shared_address(codes), row_bytes);
      if (has_wide_scales)
        bulk_store(target.scales + row * dispatch.scale_bytes, shared_address(scales), scale_bytes);
    }
    commit_stores();
    for (int index = 0; !has_wide_scales && index < entries.count; ++index) {
      const RowEntry entry = entry_of(entries, index);
      if (!is_sent(dispatch, entry, index)) continue;
      std::byte* to = targets[entry.rank].scales + entry.row * dispatch.scale_bytes;
      for (int i = lane; i < static_cast<int>(scale_bytes) / 4; i += 32)
        store(to + i * 4, reinterpret_cast<const std::uint32_t*>(scales)[i]);
    }
    metadata.write(targets, token, entries, lane);
    __syncwarp();
    token = next;
  }
  wait_stores();
}
#endif

template <int kTransform>
__global__ void __launch_bounds__(kMostWarps * 32, 1)
    dispatch_rows(const __grid_constant__ ExchangeView exchange,
                  const __grid_constant__ RouteView route,
                  const __grid_constant__ DispatchView dispatch,
                  int is_bulk) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ __align__(8) std::uint64_t barriers[kMostWarps * kStages];
#endif
  __shared__ Target targets[kMostPeers];
  if (is_idle(exchange)) return;
  read_targets(exchange, targets);
  __syncthreads();
  // The gate's acquire came before this kernel; now the copy engine may touch what was granted.
  fence_proxy();
  complete_metadata(exchange, route, dispatch);
  if (dispatch.complete.zeroes_gaps != 0) zero_gaps(route, dispatch.complete);
  const Metadata metadata(exchange, route, dispatch);
#if __CUDA_ARCH__ >= 900
  if constexpr (kTransform == kCopy) {
    if (is_bulk != 0)
      return move_in_bulk(exchange, route, dispatch, targets, metadata, stages, barriers);
  }
  if constexpr (kTransform == kQuantizeFp32 || kTransform == kQuantizeUe8m0) {
    if (is_bulk != 0)
      return quantize_in_bulk<kTransform == kQuantizeUe8m0>(exchange, route, dispatch, targets,
                                                            metadata, stages, barriers);
  }
#endif
  if constexpr (kTransform == kCopy)
    move_by_registers<false>(exchange, route, dispatch, targets, metadata);
  else if constexpr (kTransform == kScale)
    move_by_registers<true>(exchange, route, dispatch, targets, metadata);
  else
    move_quantized<kTransform == kQuantizeUe8m0>(exchange, route, dispatch, targets, metadata);
}

template <int kTransform>
void launch_move(const ExchangeView& exchange,
                 const RouteView& route,
                 const DispatchView& dispatch,
                 const MoveLaunch& launch,
                 cudaStream_t stream) {
  dispatch_rows<kTransform>
      <<<static_cast<unsigned>(launch.num_blocks), static_cast<unsigned>(launch.num_warps) * 32,
         static_cast<std::size_t>(launch.shared_bytes), stream>>>(exchange, route, dispatch,
                                                                  launch.is_bulk);
}

}  // namespace

cudaError_t launch_dispatch(const ExchangeView& exchange,
                            const RouteView& route,
                            const DispatchView& dispatch,
                            const MoveLaunch& launch,
                            cudaStream_t stream) {
  switch (dispatch.transform) {
    case kScale: launch_move<kScale>(exchange, route, dispatch, launch, stream); break;
    case kQuantizeFp32:
      launch_move<kQuantizeFp32>(exchange, route, dispatch, launch, stream);
      break;
    case kQuantizeUe8m0:
      launch_move<kQuantizeUe8m0>(exchange, route, dispatch, launch, stream);
      break;
    default: launch_move<kCopy>(exchange, route, dispatch, launch, stream); break;
  }
  return cudaGetLastError();
}

cudaError_t prepare_dispatch_kernels(int shared_bytes) {
  for (const void* kernel : {reinterpret_cast<const void*>(&dispatch_rows<kCopy>),
                             reinterpret_cast<const void*>(&dispatch_rows<kScale>),
                             reinterpret_cast<const void*>(&dispatch_rows<kQuantizeFp32>),
                             reinterpret_cast<const void*>(&dispatch_rows<kQuantizeUe8m0>)})
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
        error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
