#include "bench/check.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "result_fixture.hpp"

namespace ferry::bench {
namespace {

const Layout kLayouts[] = {Layout::kByRank, Layout::kByExpert, Layout::kPadded};
const Quantize kForms[] = {Quantize::kNone, Quantize::kFp8, Quantize::kFp8Ue8m0};

TEST(CheckDelivery, AcceptsAFaultlessResultOfEveryLayoutAndForm) {
  for (const Layout layout : kLayouts)
    for (const Quantize quantize : kForms)
      for (const int rank : {0, 1}) {
        const Batch batch = small_batch(layout, quantize);
        Result result(batch, rank);

        const CheckResult check = result.check();

        EXPECT_TRUE(check.is_ok()) << check.first_difference;
        EXPECT_EQ(check.rows_compared, check.rows_planned);
        EXPECT_GT(check.rows_planned, 0);
      }
}

TEST(CheckDelivery, PlansTheRowsThatTheRoutingSays) {
  const Batch by_rank = small_batch(Layout::kByRank);
  const Batch by_expert = small_batch(Layout::kByExpert);

  // Rank 0 holds experts 0 and 1: tokens 0 and 1 of rank 0, both of rank 1; five selections.
  EXPECT_EQ(Result(by_rank, 0).check().rows_planned, 4);
  EXPECT_EQ(Result(by_expert, 0).check().rows_planned, 5);
}

TEST(CheckDelivery, SeesOneFlippedBit) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  result.tokens[2 * result.row_bytes() + 2 * 33] ^= 1;

  const CheckResult check = result.check();

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.mismatches, 1);
  EXPECT_EQ(check.rows_compared, 4);
  EXPECT_TRUE(
      check.first_difference.starts_with("rank 0 row 2 (token 0 of rank 1): tokens[2, 33] is 0x"))
      << check.first_difference;
}

TEST(CheckDelivery, SeesAnyFlippedByteOfAnyRow) {
  for (const Quantize quantize : kForms) {
    const Batch batch = small_batch(Layout::kByExpert, quantize);
    const size_t length = Result(batch, 1).tokens.size();
    for (size_t at = 0; at < length; at += 61) {
      Result result(batch, 1);
      result.tokens[at] ^= 0x80;

      EXPECT_EQ(result.check().mismatches, 1) << "byte " << at;
    }
  }
}

TEST(CheckDelivery, SeesTwoRowsThatChangedPlaces) {
  for (const Layout layout : kLayouts) {
    const Batch batch = small_batch(layout);
    Result result(batch, 0);
    std::swap_ranges(result.tokens.begin(),
                     result.tokens.begin() + static_cast<std::ptrdiff_t>(result.row_bytes()),
                     result.tokens.begin() + static_cast<std::ptrdiff_t>(result.row_bytes()));

    const CheckResult check = result.check();

    EXPECT_FALSE(check.is_ok());
    EXPECT_EQ(check.mismatches, 2) << check.first_difference;
  }
}

TEST(CheckDelivery, SeesOneWrongScale) {
  const Batch batch = small_batch(Layout::kByRank, Quantize::kFp8);
  Result result(batch, 1);
  const float wrong = 0.25F;
  std::memcpy(&result.scales[(1 * 2 + 1) * 4], &wrong, 4);

  const CheckResult check = result.check();

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.mismatches, 1);
  EXPECT_EQ(check.first_difference,
            "rank 1 row 1 (token 2 of rank 0): scale 1 is 0.25, expected 0.017857144");
}

TEST(CheckDelivery, SeesOneWrongScaleExponent) {
  const Batch batch = small_batch(Layout::kByExpert, Quantize::kFp8Ue8m0);
  Result result(batch, 1);
  ++result.scales[1];

  const CheckResult check = result.check();

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.first_difference,
            "rank 1 row 0 (token 1 of rank 0): scale exponent 1 is 123, expected 122");
}

TEST(CheckDelivery, SeesAMissingRow) {
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert}) {
    const Batch batch = small_batch(layout);
    Result result(batch, 1);
    result.drop_last_row();

    const CheckResult check = result.check();

    EXPECT_FALSE(check.is_ok());
    EXPECT_EQ(check.rows_compared, check.rows_planned - 1);
    EXPECT_TRUE(check.first_difference.starts_with("rank 1: num_rows[0] is "))
        << check.first_difference;
  }
}

TEST(CheckDelivery, SeesAMissingRowEvenWhereTheCountClaimsIt) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  DeliverySnapshot seen = result.view();
  seen.tokens.shape[0] = 3;

  const CheckResult check = check_delivery(batch, 0, seen);

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.rows_compared, 3);
  EXPECT_EQ(check.first_difference,
            "rank 0 row 3 (token 1 of rank 1) is missing: the delivery has 3 rows");
}

TEST(CheckDelivery, SeesAWrongWeight) {
  const Batch batch = small_batch(Layout::kByExpert);
  Result result(batch, 0);
  result.topk_weights[2] = 2.5F;

  const CheckResult check = result.check();

  EXPECT_FALSE(check.is_ok());
  EXPECT_TRUE(check.first_difference.starts_with(
      "rank 0 row 2 (token 1 of rank 1): topk_weights is 2.5, expected 0."))
      << check.first_difference;
}

TEST(CheckDelivery, SeesAWeightWhereNoneBelongs) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  result.topk_weights[2] = 0.5F;  // token 1 of rank 0, column 0: its expert lives on rank 1

  EXPECT_EQ(result.check().first_difference,
            "rank 0 row 1 (token 1 of rank 0): topk_weights is 0.5, expected 0");
}

TEST(CheckDelivery, SeesAWrongId) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  result.topk_idx[1] = 0;

  const CheckResult check = result.check();

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.first_difference,
            "rank 0 row 0 (token 0 of rank 0): topk_idx[0, 1] is 0, expected 1");
}

TEST(CheckDelivery, SeesAWrongExpertOfARow) {
  const Batch batch = small_batch(Layout::kByExpert);
  Result result(batch, 0);
  result.row_expert[0] = 1;

  EXPECT_EQ(result.check().first_difference,
            "rank 0 row 0 (token 0 of rank 0): row_expert is 1, expected 0");
}

TEST(CheckDelivery, SeesAnExpertNamedInAGap) {
  const Batch batch = small_batch(Layout::kPadded);
  Result result(batch, 0);
  result.row_expert[5] = 0;

  EXPECT_EQ(result.check().first_difference,
            "rank 0 row 5 holds no token, but its expert is 0, expected -1");
}

TEST(CheckDelivery, SeesAWrongCount) {
  const Batch batch = small_batch(Layout::kByExpert);
  Result result(batch, 0);
  ++result.expert_counts[1];

  EXPECT_EQ(result.check().first_difference, "rank 0: expert_counts[1] is 3, expected 2");
}

TEST(CheckDelivery, SeesAWrongOffset) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  ++result.source_offsets[1];

  EXPECT_EQ(result.check().first_difference, "rank 0: source_offsets[1] is 3, expected 2");
}

TEST(CheckDelivery, SeesAWrongSource) {
  const Batch batch = small_batch(Layout::kByExpert);
  Result result(batch, 0);
  result.row_source[1] = 1;

  EXPECT_EQ(
      result.check().first_difference,
      "rank 0 row 0 (token 0 of rank 0): row_source is token 0 slot 1, expected token 0 slot 0");
}

TEST(CheckDelivery, NamesATensorThatWasNotDelivered) {
  const Batch batch = small_batch(Layout::kByRank, Quantize::kFp8);
  Result result(batch, 0);
  DeliverySnapshot seen = result.view();
  seen.scales = {};

  const CheckResult check = check_delivery(batch, 0, seen);

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.rows_compared, 0);
  EXPECT_EQ(check.first_difference, "rank 0: scales was not delivered");
}

TEST(CheckDelivery, NamesRowsOfTheWrongForm) {
  const Batch batch = small_batch(Layout::kByRank);
  Result result(batch, 0);
  DeliverySnapshot seen = result.view();
  seen.tokens.dtype = DType::kFp16;

  EXPECT_EQ(check_delivery(batch, 0, seen).first_difference,
            "rank 0: tokens has rows of 256 fp16, expected 256 bf16");
}

// Combined output in exact whole numbers, worked out by hand rather than by the oracle.
std::vector<std::uint16_t> combined_by_hand(const Batch& batch) {
  std::vector<std::uint16_t> out;
  for (std::int64_t token = 0; token < 3; ++token) {
    std::vector<std::uint16_t> x(size_t(batch.hidden));
    fill_row(batch, 0, token, x);
    // by_rank: rank 0 multiplies by 1, rank 1 by 2. Token 0 goes to rank 0, 1 to both, 2 to rank 1.
    const float factor = token == 0 ? 1.0F : token == 1 ? 3.0F : 2.0F;
    for (const std::uint16_t value : x)
      out.push_back(oracle::to_bf16(oracle::from_bf16(value) * factor));
  }
  return out;
}

TEST(CheckCombined, AcceptsTheSumsThatAHandCanMake) {
  const Batch batch = small_batch(Layout::kByRank);
  const std::vector<std::uint16_t> out = combined_by_hand(batch);

  const CheckResult check =
      check_combined(batch, 0, TensorView::dense(out.data(), DType::kBf16, {3, batch.hidden}));

  EXPECT_TRUE(check.is_ok()) << check.first_difference;
  EXPECT_EQ(check.tokens_compared, 3);
}

TEST(CheckCombined, SeesOneWrongResult) {
  const Batch batch = small_batch(Layout::kByRank);
  std::vector<std::uint16_t> out = combined_by_hand(batch);
  const std::uint16_t right = out[256 + 17];
  out[256 + 17] = 0x4120;

  const CheckResult check =
      check_combined(batch, 0, TensorView::dense(out.data(), DType::kBf16, {3, batch.hidden}));

  EXPECT_FALSE(check.is_ok());
  EXPECT_EQ(check.mismatches, 1);
  EXPECT_EQ(check.first_difference,
            fmt::format("rank 0 token 1: out[1, 17] is 10 (0x4120), expected {} (0x{:04x})",
                        oracle::from_bf16(right), right));
}

TEST(CheckCombined, TellsMinusZeroFromZero) {
  const Batch batch = small_batch(Layout::kByRank);
  std::vector<std::uint16_t> out = combined_by_hand(batch);
  const auto zero = std::ranges::find(out, 0);
  ASSERT_NE(zero, out.end());
  *zero = 0x8000;

  EXPECT_FALSE(
      check_combined(batch, 0, TensorView::dense(out.data(), DType::kBf16, {3, batch.hidden}))
          .is_ok());
}

TEST(MergeChecks, AddsUpAndKeepsTheFirstDifference) {
  std::vector<CheckResult> results(3);
  results[0].rows_planned = results[0].rows_compared = 3;
  results[1].rows_planned = results[1].rows_compared = 4;
  results[1].tokens_compared = 2;
  results[1].mismatches = 2;
  results[1].first_difference = "first";
  results[2].mismatches = 1;
  results[2].first_difference = "second";

  const CheckResult total = merge(results);

  EXPECT_EQ(total.rows_planned, 7);
  EXPECT_EQ(total.rows_compared, 7);
  EXPECT_EQ(total.tokens_compared, 2);
  EXPECT_EQ(total.mismatches, 3);
  EXPECT_EQ(total.first_difference, "first");
  EXPECT_FALSE(total.is_ok());
}

}  // namespace
}  // namespace ferry::bench
