#include "base/fp16.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "unit/base/nearest_code.hpp"

namespace ferry {
namespace {

constexpr FormatSpec kFormat{.exponent_bits = 5, .mantissa_bits = 10, .largest_code = 0x7BFF};

TEST(Fp16, DecodesEveryFiniteCodeByDefinition) {
  for (std::uint32_t code = 0; code <= kFormat.largest_code; ++code) {
    ASSERT_EQ(fp16_to_float(static_cast<std::uint16_t>(code)), kFormat.value_of(code));
    ASSERT_EQ(fp16_to_float(static_cast<std::uint16_t>(code | 0x8000)), -kFormat.value_of(code));
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(0x8000)), 0x80000000U);
}

TEST(Fp16, DecodesInfinitiesAndKeepsNanPayloads) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(0x7C00)), 0x7F800000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(0xFC00)), 0xFF800000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(0x7C01)), 0x7F802000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(0xFFFF)), 0xFFFFE000U);
}

TEST(Fp16, RoundsToNearestEven) {
  for_each_rounding(kFormat, [](float value, std::uint32_t code) {
    ASSERT_EQ(float_to_fp16(value), code) << value;
    ASSERT_EQ(float_to_fp16(-value), code | 0x8000) << -value;
  });
}

TEST(Fp16, OverflowsToInfinity) {
  EXPECT_EQ(float_to_fp16(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65519.996F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_fp16(3e38F), 0x7C00);
  EXPECT_EQ(float_to_fp16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(float_to_fp16(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Fp16, UnderflowsToZeroOfTheSameSign) {
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(1U)), 0x0000);
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0x80000001U)), 0x8000);
}

TEST(Fp16, EveryNanBecomesTheCanonicalOne) {
  for (const std::uint32_t bits : kNanBits) {
    EXPECT_EQ(float_to_fp16(std::bit_cast<float>(bits)), 0x7FFF) << std::hex << bits;
  }
}

}  // namespace
}  // namespace ferry
