#pragma once

#include <bit>
#include <cstdint>

#include "base/minifloat.hpp"

namespace ferry {

inline constexpr std::uint8_t kE4m3Nan = 0x7F;
inline constexpr std::uint8_t kE5m2Nan = 0x7F;
inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kE5m2Max = 57344.0F;

// e4m3fn: no infinity; 0x7F and 0xFF are NaN.
[[nodiscard]] constexpr float e4m3_to_float(std::uint8_t e4m3) {
  const std::uint32_t sign = (e4m3 & 0x80U) << 24;
  const std::uint32_t code = e4m3 & 0x7FU;
  const std::uint32_t finite = minifloat::decode_magnitude<4, 3>(code);
  return std::bit_cast<float>(minifloat::select(code == 0x7F, 0x7FFFFFFF, sign | finite));
}

// Rounds to nearest even and saturates: whatever is beyond +-448, infinities too, becomes +-448;
// every NaN becomes 0x7F.
[[nodiscard]] constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & minifloat::kMagnitudeMask;
  constexpr auto kLargest = std::bit_cast<std::uint32_t>(kE4m3Max);
  const std::uint32_t saturated = minifloat::select(magnitude < kLargest, magnitude, kLargest);
  const std::uint32_t code = minifloat::encode_magnitude<4, 3>(saturated) | ((bits >> 24) & 0x80);
  return static_cast<std::uint8_t>(
      minifloat::select(magnitude > minifloat::kInfinity, kE4m3Nan, code));
}

// e5m2 has infinities (0x7C, 0xFC); NaNs keep sign and payload.
[[nodiscard]] constexpr float e5m2_to_float(std::uint8_t e5m2) {
  const std::uint32_t sign = (e5m2 & 0x80U) << 24;
  const std::uint32_t code = e5m2 & 0x7FU;
  const std::uint32_t finite = minifloat::decode_magnitude<5, 2>(code);
  const std::uint32_t magnitude =
      minifloat::select(code < 0x7C, finite, minifloat::kInfinity | (code << 21));
  return std::bit_cast<float>(sign | magnitude);
}

// Rounds to nearest even, to infinity beyond 57344; every NaN becomes 0x7F.
[[nodiscard]] constexpr std::uint8_t float_to_e5m2(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & minifloat::kMagnitudeMask;
  const std::uint32_t code = minifloat::encode_magnitude<5, 2>(magnitude);
  const std::uint32_t with_sign =
      minifloat::select(code < 0x7C, code, 0x7C) | ((bits >> 24) & 0x80);
  return static_cast<std::uint8_t>(
      minifloat::select(magnitude > minifloat::kInfinity, kE5m2Nan, with_sign));
}

}  // namespace ferry
