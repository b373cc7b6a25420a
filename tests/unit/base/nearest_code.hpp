#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace ferry {

// A format by its definition: the value of a non-negative code, in double, where all of them and
// the midpoints between them are exact.
struct FormatSpec {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t largest_code;  // of a finite value

  [[nodiscard]] double value_of(std::uint32_t code) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>(code >> mantissa_bits);
    const double mantissa =
        std::ldexp(static_cast<double>(code & ((1U << mantissa_bits) - 1)), -mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias)
                         : std::ldexp(1 + mantissa, exponent - bias);
  }
};

// Calls check(value, code) for non-negative fp32 values of every kind of rounding: each code's
// value, the midpoint to the next (ties to the even code), and the fp32 neighbours of both.
template <typename Check>
void for_each_rounding(const FormatSpec& format, Check check) {
  constexpr float kUp = std::numeric_limits<float>::infinity();
  for (std::uint32_t code = 0; code < format.largest_code; ++code) {
    const auto value = static_cast<float>(format.value_of(code));
    const auto middle = static_cast<float>((format.value_of(code) + format.value_of(code + 1)) / 2);
    ASSERT_EQ(value, format.value_of(code));
    check(value, code);
    check(std::nextafter(value, kUp), code);
    if (value > 0) check(std::nextafter(value, 0.0F), code);
    check(middle, code % 2 == 0 ? code : code + 1);
    check(std::nextafter(middle, 0.0F), code);
    check(std::nextafter(middle, kUp), code + 1);
  }
}

// Random fp32 bit patterns, all exponents alike.
template <typename Check>
void for_random_bits(int count, Check check) {
  std::mt19937 random(20240607);
  for (int i = 0; i < count; ++i) check(static_cast<std::uint32_t>(random()));
}

inline constexpr std::uint32_t kNanBits[] = {
    0x7F800001, 0x7F80FFFF, 0x7FBFFFFF, 0x7FC00000, 0x7FFF7FFF, 0x7FFF8000, 0x7FFFFFFF,
    0xFF800001, 0xFF80FFFF, 0xFFBFFFFF, 0xFFC00000, 0xFFFF7FFF, 0xFFFF8000, 0xFFFFFFFF};

}  // namespace ferry
