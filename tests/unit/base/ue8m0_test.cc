#include "base/ue8m0.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "unit/base/nearest_code.hpp"

namespace ferry {
namespace {

TEST(Ue8m0, DecodesPowersOfTwo) {
  for (int code = 0; code <= 254; ++code) {
    ASSERT_EQ(ue8m0_to_float(static_cast<std::uint8_t>(code)), std::ldexp(1.0F, code - 127));
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(ue8m0_to_float(255)), 0x7FFFFFFFU);
}

TEST(Ue8m0, RoundsUpToThePowerOfTwo) {
  EXPECT_EQ(float_to_ue8m0_up(1.0F), 127);
  EXPECT_EQ(float_to_ue8m0_up(std::nextafter(1.0F, 2.0F)), 128);
  EXPECT_EQ(float_to_ue8m0_up(std::nextafter(1.0F, 0.0F)), 127);
  EXPECT_EQ(float_to_ue8m0_up(0x1p127F), 254);
  for_random_bits(100000, [](std::uint32_t bits) {
    const auto value = std::bit_cast<float>(bits & 0x7FFFFFFF);
    if (!(value > 0 && value <= 0x1p127F)) return;
    const std::uint8_t code = float_to_ue8m0_up(value);
    ASSERT_GE(ue8m0_to_float(code), value);
    if (code > 0) {
      ASSERT_LT(std::ldexp(1.0F, code - 128), value);
    }
  });
}

TEST(Ue8m0, SubnormalsRoundToTheTwoSmallestPowers) {
  EXPECT_EQ(float_to_ue8m0_up(0.0F), 0);
  EXPECT_EQ(float_to_ue8m0_up(std::bit_cast<float>(1U)), 0);
  EXPECT_EQ(float_to_ue8m0_up(0x1p-127F), 0);
  EXPECT_EQ(float_to_ue8m0_up(std::bit_cast<float>(0x00400001U)), 1);
  EXPECT_EQ(float_to_ue8m0_up(0x1p-126F), 1);
  EXPECT_EQ(float_to_ue8m0_up(0x1.000002p-126F), 2);
}

TEST(Ue8m0, WhatHasNoPowerOfTwoIsNan) {
  EXPECT_EQ(float_to_ue8m0_up(0x1.000002p127F), 255);
  EXPECT_EQ(float_to_ue8m0_up(std::numeric_limits<float>::infinity()), 255);
  EXPECT_EQ(float_to_ue8m0_up(std::bit_cast<float>(0x7FC00000U)), 255);
}

}  // namespace
}  // namespace ferry
