#pragma once

#include <bit>
#include <cstdint>

namespace ferry {

// UE8M0: a power of two from 2^-127 (0) to 2^127 (254), the exponent byte of its fp32 form but for
// 0; 255 is NaN.
[[nodiscard]] constexpr float ue8m0_to_float(std::uint8_t ue8m0) {
  const std::uint32_t power = ue8m0 == 0 ? 0x00400000U : static_cast<std::uint32_t>(ue8m0) << 23;
  return std::bit_cast<float>(ue8m0 == 255 ? 0x7FFFFFFFU : power);
}

// The smallest power of two at or above a positive value: 2^ceil(log2(value)). Zero gives 2^-127;
// values beyond 2^127, infinity and NaN give 255.
[[nodiscard]] constexpr std::uint8_t float_to_ue8m0_up(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = bits >> 23;
  const std::uint32_t mantissa = bits & 0x7FFFFF;
  // Exponent byte 0 holds subnormals: up to 2^-127 they round to it, above to 2^-126.
  const bool rounds_up = exponent == 0 ? mantissa > 0x400000 : mantissa != 0;
  return static_cast<std::uint8_t>(exponent == 255 ? 255 : exponent + (rounds_up ? 1 : 0));
}

}  // namespace ferry
