#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "plan/route_plan.hpp"
#include "unit/plan/expect_error.hpp"

namespace ferry::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// (rank, row, slot, k) of one token's entries.
std::vector<std::tuple<int, std::int64_t, int, int>> entries_of(const SendPlan& plan,
                                                                std::int64_t token) {
  std::vector<std::tuple<int, std::int64_t, int, int>> found;
  for (const SendEntry& entry : plan.of_token(token)) {
    found.emplace_back(entry.rank, entry.row, entry.slot, entry.k);
  }
  return found;
}

TEST(CountTopk, CountsATokenOncePerRank) {
  const OwnerMap owners = make_block_owner_map(4, 2);
  const std::vector<std::int32_t> topk = {0, 1, 1, 2, -1, 3, -1, -1};
  std::vector<std::int32_t> per_expert(4, 99), per_rank(2, 99);

  count_topk(topk, 2, owners, per_expert, per_rank);

  EXPECT_THAT(per_expert, ElementsAre(1, 2, 1, 1));
  EXPECT_THAT(per_rank, ElementsAre(2, 2));
}

TEST(CountTopk, CountsBothOccurrencesOfAnAcceptedDuplicate) {
  const OwnerMap owners = make_block_owner_map(4, 2);
  std::vector<std::int32_t> per_expert(4), per_rank(2);

  count_topk(std::vector<std::int32_t>{3, 0, 3}, 3, owners, per_expert, per_rank);

  EXPECT_THAT(per_expert, ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(per_rank, ElementsAre(1, 1));
}

TEST(CountTopk, OverwritesOldCountsWhenThereAreNoTokens) {
  const OwnerMap owners = make_block_owner_map(2, 1);
  std::vector<std::int32_t> per_expert(2, 5), per_rank(1, 5);

  count_topk({}, 8, owners, per_expert, per_rank);

  EXPECT_THAT(per_expert, ElementsAre(0, 0));
  EXPECT_THAT(per_rank, ElementsAre(0));
}

TEST(SendPlan, ByRankSendsOneRowPerDestinationWithItsHighestColumn) {
  const OwnerMap owners = make_block_owner_map(6, 3);
  const RouteShape shape{.layout = Layout::kByRank, .top_k = 3, .max_tokens = 2};
  const std::vector<std::int32_t> topk = {5, 0, 4, -1, 1, -1};

  const SendPlan plan = plan_send(topk, owners, shape, std::vector<std::int64_t>{10, 20, 30});

  EXPECT_THAT(plan.token_begin, ElementsAre(0, 2, 3));
  EXPECT_THAT(entries_of(plan, 0), ElementsAre(std::tuple(0, 10, 0, 1), std::tuple(2, 30, 1, 2)));
  EXPECT_THAT(entries_of(plan, 1), ElementsAre(std::tuple(0, 11, 0, 1)));
  EXPECT_EQ(plan.num_dropped, 0);
}

TEST(SendPlan, ByExpertSendsOneRowPerColumnSortedByRank) {
  const OwnerMap owners = make_block_owner_map(6, 3);
  const RouteShape shape{.layout = Layout::kByExpert, .top_k = 3, .max_tokens = 2};
  const std::vector<std::int32_t> topk = {5, 0, 4};

  const SendPlan plan =
      plan_send(topk, owners, shape, std::vector<std::int64_t>{10, 20, 30, 40, 50, 60});

  EXPECT_THAT(entries_of(plan, 0), ElementsAre(std::tuple(0, 10, 1, 1), std::tuple(2, 60, 0, 0),
                                               std::tuple(2, 50, 2, 2)));
}

TEST(SendPlan, AnAcceptedDuplicateTakesTwoRowsByAscendingColumn) {
  const OwnerMap owners = make_block_owner_map(2, 2);
  const RouteShape by_expert{.layout = Layout::kByExpert, .top_k = 3, .max_tokens = 1};
  const RouteShape by_rank{.layout = Layout::kByRank, .top_k = 3, .max_tokens = 1};
  const std::vector<std::int32_t> topk = {1, 0, 1};

  EXPECT_THAT(entries_of(plan_send(topk, owners, by_expert, std::vector<std::int64_t>{7, 8}), 0),
              ElementsAre(std::tuple(0, 7, 1, 1), std::tuple(1, 8, 0, 0), std::tuple(1, 9, 2, 2)));
  EXPECT_THAT(entries_of(plan_send(topk, owners, by_rank, std::vector<std::int64_t>{7, 8}), 0),
              ElementsAre(std::tuple(0, 7, 0, 1), std::tuple(1, 8, 1, 2)));
}

TEST(SendPlan, DropsAndCountsRowsAtTheCap) {
  const OwnerMap owners = make_block_owner_map(2, 2);
  const RouteShape shape{.layout = Layout::kByRank, .top_k = 2, .max_tokens = 3, .row_cap = 2};
  const std::vector<std::int32_t> topk = {0, 1, 0, 1, 0, 1};

  const SendPlan plan = plan_send(topk, owners, shape, std::vector<std::int64_t>{1, 0});

  EXPECT_THAT(entries_of(plan, 0), ElementsAre(std::tuple(0, 1, 0, 0), std::tuple(1, 0, 1, 1)));
  EXPECT_THAT(entries_of(plan, 1), ElementsAre(std::tuple(1, 1, 1, 1)));
  EXPECT_THAT(entries_of(plan, 2), IsEmpty());
  EXPECT_EQ(plan.num_dropped, 3);
}

TEST(SendPlan, PaddedIgnoresTheCap) {
  const OwnerMap owners = make_block_owner_map(2, 2);
  const RouteShape shape{.layout = Layout::kPadded, .top_k = 1, .max_tokens = 3, .row_cap = 0};

  const SendPlan plan =
      plan_send(std::vector<std::int32_t>{0, 0, 0}, owners, shape, std::vector<std::int64_t>{0, 0});

  EXPECT_EQ(plan.entries.size(), 3U);
  EXPECT_EQ(plan.num_dropped, 0);
}

TEST(SendPlan, RowsReachPast32Bits) {
  const OwnerMap owners = make_block_owner_map(1, 1);
  const RouteShape shape{.layout = Layout::kPadded, .top_k = 1, .max_tokens = 1};
  const std::int64_t base = std::int64_t{1} << 40;

  const SendPlan plan = plan_send(std::vector<std::int32_t>{0, 0}, owners, shape, {{base}});

  EXPECT_EQ(plan.of_token(1)[0].row, base + 1);
}

TEST(SendPlan, NoTokensIsAnEmptyPlan) {
  const OwnerMap owners = make_block_owner_map(2, 2);
  const RouteShape shape{.layout = Layout::kByRank, .top_k = 8, .max_tokens = 3};

  const SendPlan plan = plan_send({}, owners, shape, std::vector<std::int64_t>{0, 0});

  EXPECT_THAT(plan.token_begin, ElementsAre(0));
  EXPECT_THAT(plan.entries, IsEmpty());
}

}  // namespace
}  // namespace ferry::plan
