#pragma once

#include <bit>
#include <cstdint>

#include "base/minifloat.hpp"

namespace ferry {

inline constexpr std::uint16_t kFp16Nan = 0x7FFF;  // the one that arithmetic gives

// NaNs keep sign and payload.
[[nodiscard]] constexpr float fp16_to_float(std::uint16_t fp16) {
  const std::uint32_t sign = (fp16 & 0x8000U) << 16;
  const std::uint32_t code = fp16 & 0x7FFFU;
  const std::uint32_t finite = minifloat::decode_magnitude<5, 10>(code);
  const std::uint32_t magnitude =
      minifloat::select(code < 0x7C00, finite, minifloat::kInfinity | (code << 13));
  return std::bit_cast<float>(sign | magnitude);
}

// Rounds to nearest even, to infinity beyond 65504; every NaN becomes kFp16Nan.
[[nodiscard]] constexpr std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & minifloat::kMagnitudeMask;
  const std::uint32_t code = minifloat::encode_magnitude<5, 10>(magnitude);
  const std::uint32_t with_sign =
      minifloat::select(code < 0x7C00, code, 0x7C00) | ((bits >> 16) & 0x8000);
  return static_cast<std::uint16_t>(
      minifloat::select(magnitude > minifloat::kInfinity, kFp16Nan, with_sign));
}

}  // namespace ferry
