#include "cpu/reduce.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "base/bf16.hpp"
#include "base/fp16.hpp"

namespace ferry::cpu {
namespace {

// One element of a row as its bits; 16-bit types use the lower half.
using Bits = std::uint32_t;
using Row = std::vector<Bits>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Bits kQuietNan = 0x7FC00000;

float decode(DType dtype, Bits bits) {
  if (dtype == DType::kBf16) return bf16_to_float(static_cast<std::uint16_t>(bits));
  if (dtype == DType::kFp16) return fp16_to_float(static_cast<std::uint16_t>(bits));
  return std::bit_cast<float>(bits);
}

Bits encode(DType dtype, float value) {
  if (dtype == DType::kBf16) return float_to_bf16(value);
  if (dtype == DType::kFp16) return float_to_fp16(value);
  return std::isnan(value) ? 0x7FFFFFFF : std::bit_cast<Bits>(value);
}

// Rows as memory, at an odd multiple of two bytes: nothing may rely on alignment.
std::vector<std::byte> pack(DType dtype, const Row& row) {
  const std::size_t width = dtype_bytes(dtype);
  std::vector<std::byte> bytes(row.size() * width + 2);
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::memcpy(bytes.data() + 2 + i * width, &row[i], width);  // little endian
  }
  return bytes;
}

struct Sum {
  DType dtype = DType::kBf16;
  std::vector<Row> rows = {};
  std::vector<float> weights = {};  // empty: unweighted
  Row bias = {};                    // empty: none
  Row second_bias = {};
};

// The rule, one channel at a time. Volatile keeps every product and sum a separate rounding.
Row expected_sum(const Sum& sum, std::size_t hidden) {
  Row out(hidden);
  for (std::size_t channel = 0; channel < hidden; ++channel) {
    volatile float total = sum.bias.empty() ? 0.0F : decode(sum.dtype, sum.bias[channel]);
    if (!sum.second_bias.empty()) total = total + decode(sum.dtype, sum.second_bias[channel]);
    for (std::size_t row = 0; row < sum.rows.size(); ++row) {
      volatile float term = decode(sum.dtype, sum.rows[row][channel]);
      if (!sum.weights.empty()) term = sum.weights[row] * term;
      total = total + term;
    }
    out[channel] = encode(sum.dtype, total);
  }
  return out;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

// sum_rows on the packed rows, its result unpacked; also checks the bytes behind the result, and
// that a streamed sum is the same where there can be one.
Row actual_sum(const Sum& sum, std::size_t hidden) {
  const std::size_t width = dtype_bytes(sum.dtype);
  std::vector<std::vector<std::byte>> packed;
  std::vector<const void*> rows;
  for (const Row& row : sum.rows) packed.push_back(pack(sum.dtype, row));
  for (const auto& row : packed) rows.push_back(row.data() + 2);
  const std::vector<std::byte> bias = pack(sum.dtype, sum.bias);
  const std::vector<std::byte> second_bias = pack(sum.dtype, sum.second_bias);
  std::vector<std::byte> out(hidden * width + 66, std::byte{0xEE});

  SumArgs args{.dtype = sum.dtype,
               .hidden = static_cast<std::int64_t>(hidden),
               .out = out.data() + 2,
               .rows = rows,
               .weights = sum.weights.empty() ? nullptr : sum.weights.data(),
               .bias = sum.bias.empty() ? nullptr : bias.data() + 2,
               .second_bias = sum.second_bias.empty() ? nullptr : second_bias.data() + 2};
  sum_rows(args);

  std::vector<Line> lines(hidden * width / sizeof(Line));
  const auto row_bytes = static_cast<std::int64_t>(hidden * width);
  if (can_stream(lines.data(), row_bytes, row_bytes)) {
    args.out = lines.data();
    args.is_streamed = true;
    sum_rows(args);
    EXPECT_EQ(std::memcmp(lines.data(), out.data() + 2, hidden * width), 0);
  }

  Row unpacked(hidden, 0);
  for (std::size_t i = 0; i < hidden; ++i) {
    std::memcpy(&unpacked[i], out.data() + 2 + i * width, width);
  }
  for (std::size_t i = hidden * width + 2; i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0xEE});
  return unpacked;
}

void expect_rule(const Sum& sum, std::size_t hidden) {
  const Row expected = expected_sum(sum, hidden);
  const Row actual = actual_sum(sum, hidden);
  for (std::size_t channel = 0; channel < hidden; ++channel) {
    ASSERT_EQ(actual[channel], expected[channel])
        << dtype_name(sum.dtype) << " channel " << channel << " of " << hidden << ", "
        << sum.rows.size() << " rows, " << (sum.weights.empty() ? "unweighted" : "weighted")
        << std::hex << ", got " << actual[channel] << " expected " << expected[channel];
  }
}

// One-channel sums, repeated over a row of 16.
Bits sum_of(DType dtype, const std::vector<Bits>& terms) {
  Sum sum{.dtype = dtype};
  for (const Bits term : terms) sum.rows.emplace_back(16, term);
  const Row out = actual_sum(sum, 16);
  for (const Bits bits : out) EXPECT_EQ(bits, out[0]);
  return out[0];
}

// --- by hand -----------------------------------------------------------------------------------

TEST(SumRows, OfNothingIsPlusZero) {
  EXPECT_EQ(sum_of(DType::kBf16, {}), 0x0000U);
  EXPECT_EQ(sum_of(DType::kFp16, {}), 0x0000U);
  EXPECT_EQ(sum_of(DType::kFp32, {}), 0x00000000U);
}

TEST(SumRows, StartsAtPlusZeroSoThatMinusZeroAloneBecomesPlusZero) {
  EXPECT_EQ(sum_of(DType::kBf16, {0x8000, 0x8000}), 0x0000U);
  EXPECT_EQ(sum_of(DType::kFp32, {0x80000000}), 0x00000000U);
}

TEST(SumRows, StartsAtTheBiasSoThatMinusZeroStays) {
  const Row minus_zero(16, 0x8000);

  EXPECT_EQ(actual_sum({.bias = minus_zero}, 16), minus_zero);
  EXPECT_EQ(actual_sum({.rows = {minus_zero}, .bias = minus_zero}, 16), minus_zero);
  EXPECT_EQ(actual_sum({.second_bias = minus_zero}, 16), Row(16, 0x0000));
}

TEST(SumRows, RoundsTiesToEvenOnceAtTheEnd) {
  // 1 + 2^-8 is halfway between bf16 neighbours; a second half ulp makes it a whole one.
  EXPECT_EQ(sum_of(DType::kBf16, {0x3F80, 0x3B80}), 0x3F80U);
  EXPECT_EQ(sum_of(DType::kBf16, {0x3F81, 0x3B80}), 0x3F82U);
  EXPECT_EQ(sum_of(DType::kBf16, {0x3F80, 0x3B80, 0x3B80}), 0x3F81U);
}

TEST(SumRows, AddsInTheOrderGiven) {
  const Bits large = std::bit_cast<Bits>(0x1p24F);
  const Bits one = std::bit_cast<Bits>(1.0F);
  const Bits minus_large = std::bit_cast<Bits>(-0x1p24F);
  EXPECT_EQ(sum_of(DType::kFp32, {large, one, minus_large}), 0U);  // 1 is lost first
  EXPECT_EQ(sum_of(DType::kFp32, {large, minus_large, one}), one);
}

TEST(SumRows, NeverFusesProductAndSum) {
  // weight * row is 1 + 2^-11 + 2^-24, rounded to 1 + 2^-11; fused, 2^-24 would survive.
  const float near_one = 1.0F + 0x1p-12F;
  const Sum sum{.dtype = DType::kFp32,
                .rows = {Row(16, std::bit_cast<Bits>(near_one))},
                .weights = {near_one},
                .bias = Row(16, std::bit_cast<Bits>(-1.0F - 0x1p-11F))};

  EXPECT_EQ(actual_sum(sum, 16), Row(16, 0U));
}

TEST(SumRows, MakesEveryNanCanonical) {
  for (const Bits nan : {0x7F81U, 0x7FC0U, 0x7FFFU, 0xFF81U, 0xFFC0U, 0xFFFFU}) {
    EXPECT_EQ(sum_of(DType::kBf16, {nan}), 0x7FFFU);
    EXPECT_EQ(sum_of(DType::kBf16, {0x3F80, nan, 0x3F80}), 0x7FFFU);
  }
  for (const Bits nan : {0x7C01U, 0x7E00U, 0x7FFFU, 0xFC01U, 0xFFFFU}) {
    EXPECT_EQ(sum_of(DType::kFp16, {nan}), 0x7FFFU);
  }
  for (const Bits nan : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
    EXPECT_EQ(sum_of(DType::kFp32, {nan}), 0x7FFFFFFFU);
  }
}

TEST(SumRows, OfOppositeInfinitiesIsTheCanonicalNan) {
  EXPECT_EQ(sum_of(DType::kBf16, {0x7F80, 0xFF80}), 0x7FFFU);
  EXPECT_EQ(sum_of(DType::kFp16, {0x7C00, 0xFC00}), 0x7FFFU);
  EXPECT_EQ(sum_of(DType::kFp32, {0x7F800000, 0xFF800000}), 0x7FFFFFFFU);
}

TEST(SumRows, OverflowsToInfinityAndKeepsSubnormals) {
  EXPECT_EQ(sum_of(DType::kBf16, {0x7F7F, 0x7F7F}), 0x7F80U);
  EXPECT_EQ(sum_of(DType::kFp16, {0x7BFF, 0x7BFF}), 0x7C00U);
  EXPECT_EQ(sum_of(DType::kBf16, {0x0001, 0x0002}), 0x0003U);
  EXPECT_EQ(sum_of(DType::kFp16, {0x0001, 0x03FF}), 0x0400U);
  EXPECT_EQ(sum_of(DType::kFp32, {0x00000001, 0x00000001}), 0x00000002U);
}

TEST(SumRows, ANanStaysInItsChannel) {
  Sum sum{.rows = {Row(64, 0x3F80), Row(64, 0x3F80)}};
  sum.rows[1][31] = 0x7FC1;

  const Row out = actual_sum(sum, 64);

  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i == 31 ? 0x7FFFU : 0x4000U) << i;
}

TEST(SumRows, AWeightThatIsNotFiniteSpoilsOnlyWhatItMust) {
  const Row ones(16, 0x3F80);
  const Row zeros(16, 0x0000);
  EXPECT_EQ(actual_sum({.rows = {ones}, .weights = {kInfinity}}, 16), Row(16, 0x7F80));
  EXPECT_EQ(actual_sum({.rows = {zeros}, .weights = {kInfinity}}, 16), Row(16, 0x7FFF));
  EXPECT_EQ(actual_sum({.rows = {ones}, .weights = {std::bit_cast<float>(kQuietNan)}}, 16),
            Row(16, 0x7FFF));
}

// --- against the rule --------------------------------------------------------------------------

enum class Values { kAnyBits, kFinite };

Row random_row(std::mt19937& random, DType dtype, Values values, std::size_t hidden) {
  Row row(hidden);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  const Bits mask = dtype_bytes(dtype) == 2 ? 0xFFFF : 0xFFFFFFFF;
  for (Bits& bits : row) {
    bits = values == Values::kAnyBits ? static_cast<Bits>(random()) & mask
                                      : encode(dtype, normal(random));
  }
  return row;
}

float random_weight(std::mt19937& random, Values values) {
  if (values == Values::kAnyBits) return std::bit_cast<float>(static_cast<Bits>(random()));
  return std::uniform_real_distribution<float>(-1.0F, 1.0F)(random);
}

class SumRowsGrid : public testing::TestWithParam<std::tuple<DType, Values, bool>> {};

TEST_P(SumRowsGrid, GivesTheBitsOfTheRule) {
  const auto [dtype, values, is_weighted] = GetParam();
  std::mt19937 random(17);
  for (const std::size_t hidden : {8, 16, 24, 504, 1024, 1032, 1536, 2880, 7168}) {
    for (const std::size_t num_rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 32}) {
      Sum sum{.dtype = dtype};
      for (std::size_t row = 0; row < num_rows; ++row) {
        sum.rows.push_back(random_row(random, dtype, values, hidden));
        if (is_weighted) sum.weights.push_back(random_weight(random, values));
      }
      if (num_rows % 2 == 1) sum.bias = random_row(random, dtype, values, hidden);
      if (num_rows % 3 == 1) sum.second_bias = random_row(random, dtype, values, hidden);
      expect_rule(sum, hidden);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes,
                         SumRowsGrid,
                         testing::Combine(testing::Values(DType::kBf16, DType::kFp16, DType::kFp32),
                                          testing::Values(Values::kAnyBits, Values::kFinite),
                                          testing::Bool()));

TEST(CanStream, AsksForWholeAlignedLines) {
  alignas(64) std::byte rows[256] = {};

  EXPECT_TRUE(can_stream(rows, 128, 64));
  EXPECT_FALSE(can_stream(rows + 16, 128, 64));
  EXPECT_FALSE(can_stream(rows, 96, 64));
  EXPECT_FALSE(can_stream(rows, 128, 96));
}

// --- scale_row ---------------------------------------------------------------------------------

TEST(ScaleRow, RoundsTheProductAndMakesNansCanonical) {
  std::mt19937 random(5);
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const float weight :
         {0.3F, -0.0F, 1.0F, 1e-30F, 3e38F, kInfinity, std::bit_cast<float>(kQuietNan)}) {
      const Row row = random_row(random, dtype, Values::kAnyBits, 1000);
      const std::vector<std::byte> in = pack(dtype, row);
      std::vector<std::byte> out(in.size());

      scale_row(dtype, out.data() + 2, in.data() + 2, weight, 1000);

      for (std::size_t i = 0; i < row.size(); ++i) {
        Bits bits = 0;
        std::memcpy(&bits, out.data() + 2 + i * dtype_bytes(dtype), dtype_bytes(dtype));
        ASSERT_EQ(bits, encode(dtype, weight * decode(dtype, row[i])))
            << dtype_name(dtype) << " channel " << i << " weight " << weight;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::cpu
