#include "bench/batch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "result_fixture.hpp"

namespace ferry::bench {
namespace {

std::vector<std::uint16_t> row_of(const Batch& batch, int rank, std::int64_t token) {
  std::vector<std::uint16_t> row(size_t(batch.hidden));
  fill_row(batch, rank, token, row);
  return row;
}

TEST(FillRow, UsesEveryWholeNumberFromMinusEightToEight) {
  Batch batch = small_batch(Layout::kByRank);
  batch.hidden = 7168;

  std::set<float> seen;
  for (const std::uint16_t bits : row_of(batch, 0, 0)) seen.insert(oracle::from_bf16(bits));

  EXPECT_EQ(seen.size(), 17u);
  EXPECT_EQ(*seen.begin(), -8);
  EXPECT_EQ(*seen.rbegin(), 8);
  for (const float value : seen) EXPECT_EQ(value, std::round(value));
}

TEST(FillRow, DiffersByRankTokenAndSeed) {
  Batch batch = small_batch(Layout::kByRank);
  const auto base = row_of(batch, 0, 0);

  EXPECT_EQ(base, row_of(batch, 0, 0));
  EXPECT_NE(base, row_of(batch, 1, 0));
  EXPECT_NE(base, row_of(batch, 0, 1));
  batch.seed = 8;
  EXPECT_NE(base, row_of(batch, 0, 0));
}

TEST(WeightAt, IsNaNWhereATokenHasNoExpert) {
  const Batch batch = small_batch(Layout::kByRank);

  EXPECT_TRUE(std::isnan(weight_at(batch, 0, 2, 1)));
  EXPECT_GT(weight_at(batch, 0, 2, 0), 0);
  EXPECT_LE(weight_at(batch, 0, 2, 0), 1);
}

TEST(ApplyExperts, MultipliesInPlaceByTheFactorOfTheRank) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 1);
  const DeliverySnapshot seen = result.view();

  apply_experts(batch, 1, seen, seen.tokens);

  const auto before = row_of(batch, 0, 1);  // the first row that rank 1 receives
  const auto* after = reinterpret_cast<const std::uint16_t*>(result.tokens.data());
  for (size_t c = 0; c < before.size(); ++c)
    ASSERT_EQ(oracle::from_bf16(after[c]), 2 * oracle::from_bf16(before[c]));
}

TEST(ApplyExperts, MultipliesByTheFactorOfTheExpert) {
  const Batch batch = small_batch(Layout::kByExpert);
  Result result(batch, 1);
  const DeliverySnapshot seen = result.view();

  apply_experts(batch, 1, seen, seen.tokens);

  // Rows 0 and 1 are expert 2's (factor 3), rows 2 and 3 expert 3's (factor 1).
  const auto* after = reinterpret_cast<const std::uint16_t*>(result.tokens.data());
  EXPECT_EQ(oracle::from_bf16(after[5]), 3 * oracle::from_bf16(row_of(batch, 0, 1)[5]));
  EXPECT_EQ(after[2 * 256 + 5], row_of(batch, 0, 2)[5]);
}

TEST(ApplyExperts, DequantisesAsTheOracleDoes) {
  for (const Quantize quantize : {Quantize::kFp8, Quantize::kFp8Ue8m0}) {
    const Batch batch = small_batch(Layout::kByRank, quantize);
    Result result(batch, 1);
    std::vector<std::uint16_t> y(4 * 256);

    apply_experts(batch, 1, result.view(),
                  TensorView::dense(y.data(), DType::kBf16, {4, batch.hidden}));

    const float amax = 8;
    const oracle::GroupScale scale =
        quantize == Quantize::kFp8 ? oracle::scale_fp32(amax) : oracle::scale_ue8m0(amax);
    const float x = oracle::from_bf16(row_of(batch, 0, 1)[9]);
    const float value = oracle::from_e4m3(oracle::to_e4m3(x * scale.multiplier)) * scale.inverse;
    EXPECT_EQ(y[9], oracle::to_bf16(value * 2));
  }
}

}  // namespace
}  // namespace ferry::bench
