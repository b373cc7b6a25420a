#pragma once

#include <bit>
#include <cstdint>

namespace ferry {

inline constexpr std::uint16_t kBf16Nan = 0x7FFF;  // the one that arithmetic gives

[[nodiscard]] constexpr float bf16_to_float(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

// Rounds to nearest even; every NaN becomes kBf16Nan.
[[nodiscard]] constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<std::uint16_t>(is_nan ? kBf16Nan : rounded);
}

}  // namespace ferry
