#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/entries.cuh"
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

// The sum of a combine: a token's rows are read from the peers' y, added in fp32 in a fixed order
// and written once. Rows of y are read by streaming loads: nobody reads them again.
namespace ferry::cuda {

inline constexpr int kGroup = 8;  // rows in flight

// Where one peer offers its y.
struct Source {
  const std::byte* rows;
  std::int64_t pitch;
  const float* weights;
};

template <typename Said>
__device__ __forceinline__ Source source_of(std::uint64_t base, const Said& said) {
  return {reinterpret_cast<const std::byte*>(base + said(GateSlot::kRowsOffset)),
          static_cast<std::int64_t>(said(GateSlot::kRowsPitch)),
          reinterpret_cast<const float*>(base + said(GateSlot::kWeightsOffset))};
}

// Behind the gate of an earlier kernel.
__device__ inline void read_sources(const ExchangeView& exchange, Source* sources) {
  for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
       peer += static_cast<int>(blockDim.x)) {
    const HeardSlot& slot = said_by(exchange, exchange.state->sequence, peer);
    sources[peer] =
        source_of(exchange.peer_base[peer], [&](GateSlot::Word word) { return heard(slot, word); });
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

// Whole grid. Each token's row is divided among kWarpsPerToken neighbouring warps; a lane holds
// kUnroll pieces of up to kGroup rows at a time.
template <DType kDType, bool kIsWeighted, int kWarpsPerToken, int kUnroll>
__device__ __forceinline__ void sum_rows(const ExchangeView& exchange,
                                         const RouteView& route,
                                         const CombineView& combine,
                                         const Source* sources) {
  using P = Piece<kDType>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto num_pieces = static_cast<int>(combine.row_bytes / 16);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = warp % kWarpsPerToken;
  const int num_teams = static_cast<int>(blockDim.x) / 32 / kWarpsPerToken;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * num_teams;
  std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * num_teams + warp / kWarpsPerToken;
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
    for (int first = part * 32 * kUnroll; first < num_pieces;
         first += kWarpsPerToken * 32 * kUnroll) {
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

}  // namespace ferry::cuda
