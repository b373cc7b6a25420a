#include "base/bf16.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "unit/base/nearest_code.hpp"

namespace ferry {
namespace {

constexpr FormatSpec kFormat{.exponent_bits = 8, .mantissa_bits = 7, .largest_code = 0x7F7F};

TEST(Bf16, DecodesEveryCodeToItsUpperHalf) {
  for (std::uint32_t code = 0; code <= 0xFFFF; ++code) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(bf16_to_float(static_cast<std::uint16_t>(code))),
              code << 16);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for_each_rounding(kFormat, [](float value, std::uint32_t code) {
    ASSERT_EQ(float_to_bf16(value), code) << value;
    ASSERT_EQ(float_to_bf16(-value), code | 0x8000) << -value;
  });
}

TEST(Bf16, OverflowsToInfinity) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F7F7FFFU)), 0x7F7F);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F7F8000U)), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F7FFFFFU)), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F800000U)), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0xFF7FFFFFU)), 0xFF80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0xFF800000U)), 0xFF80);
}

// Adding half an ulp to the bits alone turns 0x7FFFFFFF into -0 and 0x7F800001 into infinity.
TEST(Bf16, EveryNanBecomesTheCanonicalOne) {
  for (const std::uint32_t bits : kNanBits) {
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(bits)), 0x7FFF) << std::hex << bits;
  }
}

}  // namespace
}  // namespace ferry
