#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/route_plan.hpp"
#include "unit/plan/expect_error.hpp"

namespace ferry::plan {
namespace {

RouteShape shape_of(Layout layout, int top_k, std::int64_t max_tokens, std::int64_t alignment = 1) {
  return {
      .layout = layout, .top_k = top_k, .max_tokens = max_tokens, .expert_alignment = alignment};
}

TEST(WorstCaseRows, OfByRankIsEveryToken) {
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kByRank, 8, 4096), 8, 32, false), 8 * 4096);
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kByRank, 8, 4096), 8, 32, true), 8 * 4096);
}

TEST(WorstCaseRows, OfPaddedIsTheWholeShape) {
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kPadded, 8, 128), 8, 32, false), 32 * 8 * 128);
}

TEST(WorstCaseRows, OfByExpertCountsEachLocalExpertOfATokenOnce) {
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kByExpert, 8, 100), 2, 32, false), 2 * 100 * 8);
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kByExpert, 8, 100), 2, 3, false), 2 * 100 * 3);
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kByExpert, 8, 100), 2, 3, true), 2 * 100 * 8);
}

TEST(WorstCaseRows, OfARankWithoutExpertsIsNothing) {
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert, Layout::kPadded}) {
    EXPECT_EQ(worst_case_rows(shape_of(layout, 8, 4096), 8, 0, true), 0);
  }
}

TEST(WorstCaseRows, StopsAtTheCapExceptInPadded) {
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert}) {
    RouteShape shape = shape_of(layout, 8, 4096);
    shape.row_cap = 1000;
    EXPECT_EQ(worst_case_rows(shape, 8, 32, false), 1000);
  }
  RouteShape padded = shape_of(Layout::kPadded, 8, 4096);
  padded.row_cap = 1000;
  EXPECT_EQ(worst_case_rows(padded, 8, 32, false), 32 * 8 * 4096);
}

// Tries every distribution of one batch's rows over a rank's experts.
std::int64_t largest_aligned_total(std::int64_t num_rows,
                                   int num_experts,
                                   std::int64_t most_per_expert,
                                   std::int64_t alignment) {
  std::int64_t largest = 0;
  const std::function<void(int, std::int64_t, std::int64_t)> fill =
      [&](int experts_left, std::int64_t rows_left, std::int64_t total) {
        largest = std::max(largest, total);
        if (experts_left == 0) return;
        for (std::int64_t rows = 0; rows <= std::min(rows_left, most_per_expert); ++rows) {
          fill(experts_left - 1, rows_left - rows,
               total + (rows + alignment - 1) / alignment * alignment);
        }
      };
  fill(num_experts, num_rows, 0);
  return largest;
}

TEST(WorstCaseRows, WithAlignmentIsExactlyTheWorstDistribution) {
  for (const int num_local : {1, 2, 3}) {
    for (const int top_k : {1, 2, 4}) {
      for (const std::int64_t max_tokens : {0, 1, 2, 5}) {
        for (const std::int64_t alignment : {1, 2, 3, 8}) {
          const RouteShape shape = shape_of(Layout::kByExpert, top_k, max_tokens, alignment);
          SCOPED_TRACE(testing::Message() << num_local << " experts, top_k " << top_k << ", "
                                          << max_tokens << " tokens, alignment " << alignment);

          EXPECT_EQ(worst_case_rows(shape, 2, num_local, true),
                    largest_aligned_total(2 * max_tokens * top_k, num_local, 2 * max_tokens * top_k,
                                          alignment));
          // Without duplicates no distribution is worse; the bound may be loose, as it does not
          // look at which tokens could make that distribution.
          EXPECT_GE(worst_case_rows(shape, 2, num_local, false),
                    largest_aligned_total(2 * max_tokens * std::min(top_k, num_local), num_local,
                                          2 * max_tokens, alignment));
        }
      }
    }
  }
}

TEST(WorstCaseRows, WithEveryExpertChosenByEveryTokenHasNoSpareGap) {
  const RouteShape shape = shape_of(Layout::kByExpert, 8, 64, 128);
  EXPECT_EQ(worst_case_rows(shape, 2, 4, false), 4 * 128);
}

TEST(WorstCaseRows, ReachesPast32Bits) {
  EXPECT_EQ(worst_case_rows(shape_of(Layout::kPadded, 32, 65536), 2048, 4096, false),
            std::int64_t{1} << 39);
}

TEST(WorstCaseRows, RefusesWhatLeaves64Bits) {
  expect_error(
      ErrorCode::kInvalidArgument, "worst-case rows overflow 64 bits: 2048 * 9223372036854775807",
      [] { (void)worst_case_rows(shape_of(Layout::kByRank, 8, INT64_MAX), 2048, 1, false); });
  expect_error(ErrorCode::kInvalidArgument,
               "worst-case rows overflow 64 bits: 4096 * 9007199254740992", [] {
                 (void)worst_case_rows(shape_of(Layout::kPadded, 8, std::int64_t{1} << 42), 2048,
                                       4096, false);
               });
  expect_error(ErrorCode::kInvalidArgument,
               "worst-case rows overflow 64 bits: 16 * 4611686018427387903", [] {
                 (void)worst_case_rows(shape_of(Layout::kByExpert, 8, 4096, std::int64_t{1} << 62),
                                       8, 16, false);
               });
}

TEST(SlotsPerToken, IsTheMostRowsOfOneToken) {
  EXPECT_EQ(slots_per_token(Layout::kByRank, 4, 8), 4);
  EXPECT_EQ(slots_per_token(Layout::kByRank, 2048, 8), 8);
  EXPECT_EQ(slots_per_token(Layout::kByExpert, 4, 8), 8);
  EXPECT_EQ(slots_per_token(Layout::kPadded, 1, 8), 8);
}

}  // namespace
}  // namespace ferry::plan
