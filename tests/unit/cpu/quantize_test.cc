#include "cpu/quantize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "base/bf16.hpp"
#include "base/fp8.hpp"
#include "engine/operation.hpp"

namespace ferry::cpu {
namespace {

using Row = std::vector<std::uint16_t>;

struct Quantized {
  std::vector<std::uint8_t> fp8;
  std::vector<std::uint32_t> scales;  // fp32 bits, or words of four exponents
};

Quantized quantize(Quantize kind, const Row& row) {
  const auto hidden = static_cast<std::int64_t>(row.size());
  Quantized out;
  // One element more on each side, which must not change.
  std::vector<std::uint8_t> fp8(row.size() + 2, 0xEE);
  std::vector<std::uint32_t> scales(static_cast<std::size_t>(engine::num_scales(kind, hidden)) + 1,
                                    0xEEEEEEEE);
  quantize_row(kind, row.data(), hidden, fp8.data() + 1, scales.data());
  EXPECT_EQ(fp8.front(), 0xEE);
  EXPECT_EQ(fp8.back(), 0xEE);
  EXPECT_EQ(scales.back(), 0xEEEEEEEE);
  out.fp8.assign(fp8.begin() + 1, fp8.end() - 1);
  out.scales.assign(scales.begin(), scales.end() - 1);
  return out;
}

float fp32_scale_at(const Quantized& quantized, std::size_t group) {
  return std::bit_cast<float>(quantized.scales[group]);
}

std::uint32_t exponent_at(const Quantized& quantized, std::size_t group) {
  return quantized.scales[group / 4] >> (8 * (group % 4)) & 0xFF;
}

TEST(NumScales, AreOnePerGroupOrPerFourGroups) {
  EXPECT_EQ(engine::num_scales(Quantize::kNone, 7168), 0);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8, 7168), 56);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8Ue8m0, 7168), 14);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8, 2880), 23);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8Ue8m0, 2880), 6);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8, 16), 1);
  EXPECT_EQ(engine::num_scales(Quantize::kFp8Ue8m0, 16), 1);
}

TEST(QuantizeRow, OfAZeroRowUsesTheSmallestAmax) {
  const Quantized fp8 = quantize(Quantize::kFp8, Row(128, 0x0000));
  EXPECT_EQ(fp8.fp8, std::vector<std::uint8_t>(128, 0x00));
  EXPECT_EQ(fp32_scale_at(fp8, 0), 1e-4F * (1.0F / 448));

  const Quantized minus = quantize(Quantize::kFp8Ue8m0, Row(128, 0x8000));
  EXPECT_EQ(minus.fp8, std::vector<std::uint8_t>(128, 0x80));
  EXPECT_EQ(minus.scales[0], 127U - 22U);  // 1e-4 / 448 is just below 2^-22
}

TEST(QuantizeRow, WithAmax448ChangesNoRepresentableValue) {
  Row row(128, float_to_bf16(1.5F));
  row[5] = float_to_bf16(-448.0F);

  const Quantized fp8 = quantize(Quantize::kFp8, row);
  const Quantized ue8m0 = quantize(Quantize::kFp8Ue8m0, row);

  EXPECT_EQ(fp32_scale_at(fp8, 0), 1.0F);
  EXPECT_EQ(exponent_at(ue8m0, 0), 127U);
  EXPECT_EQ(fp8.fp8[5], 0xFE);
  EXPECT_EQ(fp8.fp8[6], float_to_e4m3(1.5F));
  EXPECT_EQ(fp8.fp8, ue8m0.fp8);
}

TEST(QuantizeRow, GroupsDoNotTouchEachOther) {
  Row row(256, float_to_bf16(1.0F));
  row[200] = float_to_bf16(1000.0F);

  const Quantized out = quantize(Quantize::kFp8, row);

  EXPECT_EQ(out.fp8[127], 0x7E);  // 1 is its group's largest
  EXPECT_EQ(fp32_scale_at(out, 0), 1.0F / 448);
  EXPECT_EQ(out.fp8[200], 0x7E);
  EXPECT_EQ(out.fp8[128], float_to_e4m3(448.0F / 1000.0F));
}

TEST(QuantizeRow, ANanHasNoEffectOnItsNeighbours) {
  const Row clean(128, float_to_bf16(3.0F));
  for (const Quantize kind : {Quantize::kFp8, Quantize::kFp8Ue8m0}) {
    const Quantized expected = quantize(kind, clean);
    for (const std::uint16_t nan : Row{0x7F81, 0x7FC0, 0x7FFF, 0xFF81, 0xFFFF}) {
      Row row = clean;
      row[77] = nan;

      const Quantized out = quantize(kind, row);

      EXPECT_EQ(out.scales, expected.scales);
      for (std::size_t i = 0; i < row.size(); ++i) {
        EXPECT_EQ(out.fp8[i], i == 77 ? 0x7F : expected.fp8[i]) << i;
      }
    }
  }
}

TEST(QuantizeRow, InfinitiesSaturateAndDoNotCountAsLargest) {
  Row row(128, float_to_bf16(2.0F));
  row[0] = 0x7F80;
  row[127] = 0xFF80;

  const Quantized out = quantize(Quantize::kFp8, row);

  EXPECT_EQ(fp32_scale_at(out, 0), 2.0F * (1.0F / 448));
  EXPECT_EQ(out.fp8[0], 0x7E);
  EXPECT_EQ(out.fp8[127], 0xFE);
  EXPECT_EQ(out.fp8[1], 0x7E);
}

TEST(QuantizeRow, OfNothingFiniteUsesTheSmallestAmax) {
  const Quantized out = quantize(Quantize::kFp8, Row(128, 0x7FC0));
  EXPECT_EQ(out.fp8, std::vector<std::uint8_t>(128, 0x7F));
  EXPECT_EQ(fp32_scale_at(out, 0), 1e-4F * (1.0F / 448));
}

TEST(QuantizeRow, PacksFourExponentsLowestGroupFirstAndZeroesTheRest) {
  Row row(5 * 128 + 16, 0x0000);
  for (std::size_t group = 0; group < 6; ++group) {
    row[group * 128] = float_to_bf16(std::ldexp(448.0F, static_cast<int>(group)));
  }

  const Quantized out = quantize(Quantize::kFp8Ue8m0, row);

  ASSERT_EQ(out.scales.size(), 2U);
  EXPECT_EQ(out.scales[0], 0x8281807FU);
  EXPECT_EQ(out.scales[1], 0x00008483U);
}

// ceil(log2(amax / 448)): the smallest e with amax <= 448 * 2^e, which is exact in double.
TEST(QuantizeRow, Ue8m0TakesTheSmallestPowerOfTwoForEveryAmax) {
  for (std::uint32_t bits = float_to_bf16(1e-4F) + 1; bits < 0x7F80; ++bits) {
    const auto amax = static_cast<double>(bf16_to_float(static_cast<std::uint16_t>(bits)));
    Row row(8, 0x0000);
    row[3] = static_cast<std::uint16_t>(bits);

    const auto exponent =
        static_cast<int>(exponent_at(quantize(Quantize::kFp8Ue8m0, row), 0)) - 127;

    ASSERT_LE(amax, std::ldexp(448.0, exponent)) << amax;
    ASSERT_GT(amax, std::ldexp(448.0, exponent - 1)) << amax;
  }
}

// The formulas, one channel at a time.
void expect_formulas(const Row& row) {
  const Quantized fp8 = quantize(Quantize::kFp8, row);
  const Quantized ue8m0 = quantize(Quantize::kFp8Ue8m0, row);
  for (std::size_t first = 0; first < row.size(); first += 128) {
    const std::size_t last = std::min(first + 128, row.size());
    float amax = 1e-4F;
    for (std::size_t i = first; i < last; ++i) {
      const float value = bf16_to_float(row[i]);
      if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
    }
    ASSERT_EQ(fp32_scale_at(fp8, first / 128), amax * (1.0F / 448.0F));
    const int exponent = static_cast<int>(exponent_at(ue8m0, first / 128)) - 127;
    for (std::size_t i = first; i < last; ++i) {
      const float value = bf16_to_float(row[i]);
      ASSERT_EQ(fp8.fp8[i], float_to_e4m3(value * (448.0F / amax))) << "channel " << i;
      ASSERT_EQ(ue8m0.fp8[i], float_to_e4m3(value * std::ldexp(1.0F, -exponent)))
          << "channel " << i;
    }
  }
}

TEST(QuantizeRow, FollowsTheFormulasForAnyBits) {
  std::mt19937 random(3);
  for (const std::size_t hidden : {8, 16, 120, 128, 136, 512, 1536, 2880, 7168}) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      Row row(hidden);
      for (std::uint16_t& bits : row) bits = static_cast<std::uint16_t>(random());
      expect_formulas(row);
      for (std::uint16_t& bits : row) {
        bits = float_to_bf16(std::normal_distribution<float>()(random));
      }
      expect_formulas(row);
    }
  }
}

}  // namespace
}  // namespace ferry::cpu
