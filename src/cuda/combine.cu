// Combine: a warp per token reads its rows from the peers' y, sums them in fp32 in a fixed order
// and writes the result once. Rows of y are read by streaming loads: nobody reads them again.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/entries.cuh"
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

namespace ferry::cuda {

namespace {

constexpr int kWarps = 16;
constexpr int kGroup = 8;  // rows in flight

// Where one peer offers its y.
struct Source {
  const std::byte* rows;
  std::int64_t pitch;
  const float* weights;
};

__device__ void read_sources(const ExchangeView& exchange, Source* sources) {
  for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
       peer += static_cast<int>(blockDim.x)) {
    const GateSlot& said = said_by(exchange, peer);
    const std::uint64_t base = exchange.peer_base[peer];
    sources[peer] = {
        reinterpret_cast<const std::byte*>(base + load_relaxed(&said.words[GateSlot::kRowsOffset])),
        static_cast<std::int64_t>(load_relaxed(&said.words[GateSlot::kRowsPitch])),
        reinterpret_cast<const float*>(base + load_relaxed(&said.words[GateSlot::kWeightsOffset]))};
  }
}

// A 16-byte piece of a row as channels in fp32, and back with one rounding; NaN results canonical.
template <DType kDType>
struct Piece;

template <>
struct Piece<DType::kBf16> {
  static constexpr int kChannels = 8;
  __device__ static float channel(const uint4& piece, int i) {
    const std::uint32_t word = (&piece.x)[i / 2];
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
  }
  __device__ static uint4 pack(const float (&sums)[kChannels]) {
    uint4 piece;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      (&piece.x)[i] =
          static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(sums[2 * i + 1])))
              << 16 |
          __bfloat16_as_ushort(__float2bfloat16_rn(sums[2 * i]));
    return piece;
  }
};

template <>
struct Piece<DType::kFp16> {
  static constexpr int kChannels = 8;
  __device__ static float channel(const uint4& piece, int i) {
    const std::uint32_t word = (&piece.x)[i / 2];
    return __half2float(
        __ushort_as_half(static_cast<unsigned short>(i % 2 == 0 ? word & 0xFFFFU : word >> 16)));
  }
  __device__ static uint4 pack(const float (&sums)[kChannels]) {
    uint4 piece;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      (&piece.x)[i] = static_cast<std::uint32_t>(__half_as_ushort(__float2half_rn(sums[2 * i + 1])))
                          << 16 |
                      __half_as_ushort(__float2half_rn(sums[2 * i]));
    return piece;
  }
};

template <>
struct Piece<DType::kFp32> {
  static constexpr int kChannels = 4;
  __device__ static float channel(const uint4& piece, int i) {
    return __uint_as_float((&piece.x)[i]);
  }
  __device__ static uint4 pack(const float (&sums)[kChannels]) {
    uint4 piece;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      (&piece.x)[i] = sums[i] != sums[i] ? 0x7FFFFFFFU : __float_as_uint(sums[i]);
    return piece;
  }
};

// The rows of one token in the order of the sum, one a lane.
struct Rows {
  const uint4* start;
  float weight;
  int count;
};

template <bool kIsWeighted>
__device__ Rows find_rows(const CombineView& combine,
                          const Source* sources,
                          const Entries& entries,
                          std::int64_t token,
                          int lane) {
  Rows rows{nullptr, 1.0F, entries.count};
  const bool has_row = lane < rows.count;
  RowEntry entry = entries.own;
  if constexpr (kIsWeighted) {
    // By ascending k, wherever the entry stands.
    int place = 0;
    for (int other = 0; other < rows.count; ++other)
      place += __shfl_sync(kAllLanes, static_cast<int>(entry.k), other) < entry.k ? 1 : 0;
    int from = lane;
    for (int other = 0; other < rows.count; ++other)
      if (__shfl_sync(kAllLanes, place, other) == lane) from = other;
    const auto row = __shfl_sync(kAllLanes, entry.row, from);
    const auto rank = __shfl_sync(kAllLanes, static_cast<int>(entry.rank), from);
    const auto k = __shfl_sync(kAllLanes, static_cast<int>(entry.k), from);
    entry.row = row;
    entry.rank = static_cast<std::uint16_t>(rank);
    if (has_row)
      rows.weight = *reinterpret_cast<const float*>(combine.topk_weights +
                                                    token * combine.topk_weights_pitch + k * 4);
  }
  if (has_row) {
    const Source& source = sources[entry.rank];
    rows.start = reinterpret_cast<const uint4*>(source.rows + entry.row * source.pitch);
  }
  return rows;
}

__device__ __forceinline__ const uint4* row_of(const Rows& rows, int index) {
  return reinterpret_cast<const uint4*>(
      __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(rows.start), index));
}

template <bool kIsWeighted>
__device__ __forceinline__ float add(float sum, float weight, float value) {
  return kIsWeighted ? __fadd_rn(sum, __fmul_rn(weight, value)) : __fadd_rn(sum, value);
}

template <DType kDType, bool kIsWeighted>
__global__ void __launch_bounds__(kWarps * 32, 1)
    combine_rows(const __grid_constant__ ExchangeView exchange,
                 const __grid_constant__ RouteView route,
                 const __grid_constant__ CombineView combine) {
  using P = Piece<kDType>;
  constexpr int kUnroll = 2;
  __shared__ Source sources[kMostPeers];
  if (is_idle(exchange)) return;
  read_sources(exchange, sources);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto num_pieces = static_cast<int>(combine.row_bytes / 16);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / 32);
  std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  for (; token < route.num_tokens; token += step) {
    const Rows rows = find_rows<kIsWeighted>(
        combine, sources, read_entries(exchange, route, token, lane), token, lane);
    prefetch_entries(exchange, route, token + step, lane);
    auto* out = reinterpret_cast<uint4*>(combine.out + token * combine.out_pitch);
    // Most tokens have at most kGroup rows: their addresses stay in registers.
    const uint4* first_rows[kGroup];
    float first_weights[kGroup];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      first_rows[j] = row_of(rows, j);
      first_weights[j] = kIsWeighted ? __shfl_sync(kAllLanes, rows.weight, j) : 1.0F;
    }
    // Whole warps in step: the loop below shuffles.
    for (int first = 0; first < num_pieces; first += 32 * kUnroll) {
      float sums[kUnroll][P::kChannels];
      int at[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        at[u] = first + u * 32 + lane;
#pragma unroll
        for (int i = 0; i < P::kChannels; ++i) sums[u][i] = 0.0F;
      }
      if (combine.bias != nullptr) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          if (at[u] >= num_pieces) continue;
          const uint4 bias =
              reinterpret_cast<const uint4*>(combine.bias + token * combine.bias_pitch)[at[u]];
#pragma unroll
          // Not 0 + bias: the sum starts at the bias, so that -0 alone stays -0.
          for (int i = 0; i < P::kChannels; ++i) sums[u][i] = P::channel(bias, i);
        }
      }
      if (combine.second_bias != nullptr) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          if (at[u] >= num_pieces) continue;
          const uint4 bias = reinterpret_cast<const uint4*>(
              combine.second_bias + token * combine.second_bias_pitch)[at[u]];
#pragma unroll
          for (int i = 0; i < P::kChannels; ++i)
            sums[u][i] = __fadd_rn(sums[u][i], P::channel(bias, i));
        }
      }
      for (int group = 0; group < rows.count; group += kGroup) {
        uint4 pieces[kUnroll][kGroup];
        float weights[kGroup];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const int index = group + j;
          const uint4* row = group == 0 ? first_rows[j] : row_of(rows, index);
          weights[j] = group == 0 || !kIsWeighted ? first_weights[j]
                                                  : __shfl_sync(kAllLanes, rows.weight, index);
          if (index >= rows.count) continue;
#pragma unroll
          for (int u = 0; u < kUnroll; ++u)
            if (at[u] < num_pieces) pieces[u][j] = __ldcs(row + at[u]);
        }
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          if (group + j >= rows.count) continue;
#pragma unroll
          for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int i = 0; i < P::kChannels; ++i)
              sums[u][i] = add<kIsWeighted>(sums[u][i], weights[j], P::channel(pieces[u][j], i));
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (at[u] < num_pieces) __stcs(out + at[u], P::pack(sums[u]));
    }
  }
}

// A warp per token, a lane per column.
__global__ void __launch_bounds__(256)
    combine_weights(const __grid_constant__ ExchangeView exchange,
                    const __grid_constant__ RouteView route,
                    float* combined_weights) {
  __shared__ Source sources[kMostPeers];
  if (is_idle(exchange)) return;
  read_sources(exchange, sources);
  __syncthreads();
  const bool is_by_rank = static_cast<Layout>(route.layout) == Layout::kByRank;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * 8;
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
       token < route.num_tokens; token += step) {
    const int count = route.num_entries[token];
    const std::uint32_t home =
        lane < exchange.top_k ? route.home[token * exchange.top_k + lane] : RouteView::kNowhere;
    float weight = 0.0F;
    for (int index = 0; index < count; ++index) {
      const RowEntry entry = route.entries[token * exchange.top_k + index];
      const float* weights = sources[entry.rank].weights;
      if (is_by_rank) {
        if (home != RouteView::kNowhere && home >> 16 == entry.rank)
          weight = weights[static_cast<std::int64_t>(entry.row) * exchange.top_k + lane];
      } else if (entry.k == lane) {
        weight = weights[entry.row];
      }
    }
    if (lane < exchange.top_k) combined_weights[token * exchange.top_k + lane] = weight;
  }
}

template <DType kDType>
void launch_sum(const ExchangeView& exchange,
                const RouteView& route,
                const CombineView& combine,
                const MoveLaunch& launch,
                cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(launch.num_blocks);
  const auto threads = static_cast<unsigned>(launch.num_warps) * 32;
  const auto shared = static_cast<std::size_t>(launch.shared_bytes);
  if (combine.topk_weights != nullptr)
    combine_rows<kDType, true><<<blocks, threads, shared, stream>>>(exchange, route, combine);
  else
    combine_rows<kDType, false><<<blocks, threads, shared, stream>>>(exchange, route, combine);
}

}  // namespace

cudaError_t launch_combine(const ExchangeView& exchange,
                           const RouteView& route,
                           const CombineView& combine,
                           const MoveLaunch& launch,
                           cudaStream_t stream) {
  switch (static_cast<DType>(combine.dtype)) {
    case DType::kFp16: launch_sum<DType::kFp16>(exchange, route, combine, launch, stream); break;
    case DType::kFp32: launch_sum<DType::kFp32>(exchange, route, combine, launch, stream); break;
    default: launch_sum<DType::kBf16>(exchange, route, combine, launch, stream); break;
  }
  return cudaGetLastError();
}

cudaError_t launch_combine_weights(const ExchangeView& exchange,
                                   const RouteView& route,
                                   float* combined_weights_out,
                                   cudaStream_t stream) {
  combine_weights<<<16, 256, 0, stream>>>(exchange, route, combined_weights_out);
  return cudaGetLastError();
}

cudaError_t prepare_combine_kernels(int shared_bytes) {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&combine_rows<DType::kBf16, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kBf16, true>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp16, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp16, true>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp32, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp32, true>)})
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
        error != cudaSuccess)
      return error;
  return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(&combine_weights));
}

}  // namespace ferry::cuda
