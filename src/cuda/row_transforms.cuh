#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/entries.cuh"
#include "ferry/tensor.hpp"

// How rows change on their way: scaled by a weight, or quantised. Piece by piece, in registers.
namespace ferry::cuda {

inline constexpr std::int64_t kQuantizeGroup = 128;

// One 16-byte piece of a row times a weight, each channel rounded once, NaNs canonical.
__device__ inline uint4 scale_piece(uint4 piece, float weight, DType dtype) {
  auto* words = reinterpret_cast<std::uint32_t*>(&piece);
  for (int i = 0; i < 4; ++i) {
    if (dtype == DType::kFp32) {
      const float value = __fmul_rn(weight, __uint_as_float(words[i]));
      words[i] = value != value ? 0x7FFFFFFFU : __float_as_uint(value);
    } else if (dtype == DType::kBf16) {
      const float low = __fmul_rn(weight, __uint_as_float(words[i] << 16));
      const float high = __fmul_rn(weight, __uint_as_float(words[i] & 0xFFFF0000U));
      words[i] = static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16 |
                 __bfloat16_as_ushort(__float2bfloat16_rn(low));
    } else {
      const auto half = [](std::uint32_t bits) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
      };
      const float low = __fmul_rn(weight, half(words[i] & 0xFFFFU));
      const float high = __fmul_rn(weight, half(words[i] >> 16));
      words[i] = static_cast<std::uint32_t>(__half_as_ushort(__float2half_rn(high))) << 16 |
                 __half_as_ushort(__float2half_rn(low));
    }
  }
  return piece;
}

// --- quantisation: bf16 to e4m3 per 128 channels ------------------------------------------------

// 16 bytes of bf16 a piece: eight channels.
inline constexpr int kPieceChannels = 8;

template <int kPieces>
struct QuantizedPieces {
  uint2 codes[kPieces];      // eight e4m3 each
  std::uint32_t scale_word;  // fp32 bits, or the exponent byte
};

// The bits of the largest finite magnitude in a piece: they are ordered as the numbers are, and
// those of infinities and NaNs lie above.
inline constexpr std::uint32_t kBf16Infinity = 0x7F80;

static __device__ __noinline__ std::uint32_t largest_finite_of(std::uint32_t a,
                                                               std::uint32_t b,
                                                               std::uint32_t c,
                                                               std::uint32_t d) {
  std::uint32_t most = 0;
  for (const std::uint32_t word : {a, b, c, d})
    for (const std::uint32_t magnitude : {word >> 16, word & 0xFFFFU})
      if (magnitude < kBf16Infinity) most = max(most, magnitude);
  return most;
}

__device__ __forceinline__ std::uint32_t largest_finite(const uint4& piece) {
  const std::uint32_t words[4] = {piece.x & 0x7FFF7FFF, piece.y & 0x7FFF7FFF, piece.z & 0x7FFF7FFF,
                                  piece.w & 0x7FFF7FFF};
  const std::uint32_t both = __vmaxu2(__vmaxu2(words[0], words[1]), __vmaxu2(words[2], words[3]));
  const std::uint32_t most = max(both >> 16, both & 0xFFFFU);
  return most < kBf16Infinity ? most : largest_finite_of(words[0], words[1], words[2], words[3]);
}

// A lane holds kPieces neighbouring pieces, 16 / kPieces neighbouring lanes a group. NaN to 0x7F,
// infinities to the largest number, as the conversion does by itself.
template <bool kIsUe8m0, int kPieces>
__device__ QuantizedPieces<kPieces> quantize(const uint4 (&bf16)[kPieces]) {
  constexpr int kLanesPerGroup = static_cast<int>(kQuantizeGroup) / kPieceChannels / kPieces;
  std::uint32_t most = 0;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) most = max(most, largest_finite(bf16[p]));
#pragma unroll
  for (int offset = kLanesPerGroup / 2; offset > 0; offset /= 2)
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  const float amax = fmaxf(__uint_as_float(most << 16), 1e-4F);
  QuantizedPieces<kPieces> out;
  float scale;
  if constexpr (kIsUe8m0) {
    // ceil(log2(amax / 448)) by the bits of the number, rounded up to a power of two.
    const std::uint32_t bits = __float_as_uint(__fmul_rn(amax, 1.0F / 448.0F));
    const std::uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFU) != 0 ? 1 : 0);
    out.scale_word = exponent;
    scale = __uint_as_float((254 - exponent) << 23);  // 2^-e
  } else {
    scale = __fdiv_rn(448.0F, amax);
    out.scale_word = __float_as_uint(__fmul_rn(amax, 1.0F / 448.0F));
  }
  const auto pair = [&](std::uint32_t word) -> std::uint32_t {
    const float2 scaled = make_float2(__fmul_rn(__uint_as_float(word << 16), scale),
                                      __fmul_rn(__uint_as_float(word & 0xFFFF0000U), scale));
    return __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
  };
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    out.codes[p] = make_uint2(pair(bf16[p].x) | pair(bf16[p].y) << 16,
                              pair(bf16[p].z) | pair(bf16[p].w) << 16);
  return out;
}

}  // namespace ferry::cuda
