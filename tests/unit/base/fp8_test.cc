#include "base/fp8.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "unit/base/nearest_code.hpp"

namespace ferry {
namespace {

constexpr FormatSpec kE4m3{.exponent_bits = 4, .mantissa_bits = 3, .largest_code = 0x7E};
constexpr FormatSpec kE5m2{.exponent_bits = 5, .mantissa_bits = 2, .largest_code = 0x7B};

TEST(E4m3, DecodesEveryCodeByDefinition) {
  for (std::uint32_t code = 0; code <= kE4m3.largest_code; ++code) {
    ASSERT_EQ(e4m3_to_float(static_cast<std::uint8_t>(code)), kE4m3.value_of(code));
    ASSERT_EQ(e4m3_to_float(static_cast<std::uint8_t>(code | 0x80)), -kE4m3.value_of(code));
  }
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0F);
  EXPECT_TRUE(std::signbit(e4m3_to_float(0x80)));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3_to_float(0x7F)), 0x7FFFFFFFU);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3_to_float(0xFF)), 0x7FFFFFFFU);
}

TEST(E4m3, RoundsToNearestEven) {
  for_each_rounding(kE4m3, [](float value, std::uint32_t code) {
    ASSERT_EQ(float_to_e4m3(value), code) << value;
    ASSERT_EQ(float_to_e4m3(-value), code | 0x80) << -value;
  });
}

TEST(E4m3, SaturatesToFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {448.0F, 449.0F, 464.0F, 465.0F, 480.0F, 1e10F, 3.4e38F, kInfinity}) {
    EXPECT_EQ(float_to_e4m3(value), 0x7E) << value;
    EXPECT_EQ(float_to_e4m3(-value), 0xFE) << -value;
  }
}

TEST(E4m3, UnderflowsToZeroOfTheSameSign) {
  EXPECT_EQ(float_to_e4m3(0x1p-10F), 0x00);  // a tie between 0 and the smallest subnormal
  EXPECT_EQ(float_to_e4m3(0x1.000002p-10F), 0x01);
  EXPECT_EQ(float_to_e4m3(std::bit_cast<float>(0x80000001U)), 0x80);
}

TEST(E4m3, EveryNanBecomesTheCanonicalOne) {
  for (const std::uint32_t bits : kNanBits) {
    EXPECT_EQ(float_to_e4m3(std::bit_cast<float>(bits)), 0x7F) << std::hex << bits;
  }
}

TEST(E5m2, DecodesEveryCodeByDefinition) {
  for (std::uint32_t code = 0; code <= kE5m2.largest_code; ++code) {
    ASSERT_EQ(e5m2_to_float(static_cast<std::uint8_t>(code)), kE5m2.value_of(code));
    ASSERT_EQ(e5m2_to_float(static_cast<std::uint8_t>(code | 0x80)), -kE5m2.value_of(code));
  }
  EXPECT_EQ(e5m2_to_float(0x7C), std::numeric_limits<float>::infinity());
  EXPECT_EQ(e5m2_to_float(0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e5m2_to_float(0x7D)), 0x7FA00000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e5m2_to_float(0xFF)), 0xFFE00000U);
}

// Going through fp16 first would round twice: 1.125 + 2^-12 becomes the tie 1.125, then 1.
TEST(E5m2, RoundsToNearestEvenOnce) {
  EXPECT_EQ(float_to_e5m2(1.125F + 0x1p-12F), 0x3D);
  for_each_rounding(kE5m2, [](float value, std::uint32_t code) {
    ASSERT_EQ(float_to_e5m2(value), code) << value;
    ASSERT_EQ(float_to_e5m2(-value), code | 0x80) << -value;
  });
}

TEST(E5m2, OverflowsToInfinity) {
  EXPECT_EQ(float_to_e5m2(57344.0F), 0x7B);
  EXPECT_EQ(float_to_e5m2(61439.996F), 0x7B);
  EXPECT_EQ(float_to_e5m2(61440.0F), 0x7C);
  EXPECT_EQ(float_to_e5m2(-std::numeric_limits<float>::infinity()), 0xFC);
}

TEST(E5m2, EveryNanBecomesTheCanonicalOne) {
  for (const std::uint32_t bits : kNanBits) {
    EXPECT_EQ(float_to_e5m2(std::bit_cast<float>(bits)), 0x7F) << std::hex << bits;
  }
}

}  // namespace
}  // namespace ferry
