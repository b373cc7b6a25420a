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

// --- quantisation: bf16 to e4m3 per 128 channels, half a warp a group, eight channels a lane -----

struct QuantizedPiece {
  uint2 codes;               // eight e4m3
  std::uint32_t scale_word;  // fp32 bits, or the exponent byte
};

// `values` are eight channels of this lane; lanes of one group are neighbours. Infinities and NaNs
// do not count for the maximum.
template <bool kIsUe8m0>
__device__ QuantizedPiece quantize_piece(uint4 bf16) {
  float values[8];
  const auto* words = reinterpret_cast<const std::uint32_t*>(&bf16);
  float amax = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float magnitude = fabsf(values[i]);
    if (magnitude <= 3.402823466e38F) amax = fmaxf(amax, magnitude);
  }
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, offset));
  amax = fmaxf(amax, 1e-4F);
  QuantizedPiece out;
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
  std::uint32_t packed[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float value = __fmul_rn(values[i], scale);
    std::uint32_t code = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    if (values[i] != values[i]) code = 0x7F;
    packed[i / 4] |= (code & 0xFFU) << (8 * (i % 4));
  }
  out.codes = make_uint2(packed[0], packed[1]);
  return out;
}

}  // namespace ferry::cuda
