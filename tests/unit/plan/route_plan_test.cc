#include "plan/route_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plan/topk.hpp"
#include "unit/plan/expect_error.hpp"
#include "unit/plan/row_model.hpp"

namespace ferry::plan {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// The counts of all sources, as they would stand after their exchange.
class Counts {
 public:
  Counts(const Batch& batch, int top_k, const OwnerMap& owners)
      : num_experts_(owners.rank_of.size()), num_ranks_(owners.experts_of.size()) {
    values_.resize(batch.size() * (num_experts_ + num_ranks_));
    for (std::size_t source = 0; source < batch.size(); ++source) {
      const auto both = std::span(values_).subspan(source * (num_experts_ + num_ranks_),
                                                   num_experts_ + num_ranks_);
      count_topk(batch[source], top_k, owners, both.first(num_experts_),
                 both.subspan(num_experts_));
      spans_.push_back({both.first(num_experts_), both.subspan(num_experts_)});
    }
  }
  [[nodiscard]] std::span<const SourceCounts> of_all() const { return spans_; }

 private:
  std::size_t num_experts_;
  std::size_t num_ranks_;
  std::vector<std::int32_t> values_;
  std::vector<SourceCounts> spans_;
};

std::string text_of(const Batch& batch) {
  std::string text;
  for (const auto& ids : batch) {
    for (const std::int32_t id : ids) text += std::to_string(id) + " ";
    text += "| ";
  }
  return text;
}

// --- by hand -----------------------------------------------------------------------------------

// Two ranks, four experts. Rank 0: tokens {0, 2}, {1, -1}. Rank 1: token {1, 0}.
class RoutePlan : public testing::Test {
 protected:
  RoutePlan() : owners(make_block_owner_map(4, 2)), counts(batch, 2, owners) {}

  [[nodiscard]] static RouteShape shape_of(Layout layout) {
    return {.layout = layout, .top_k = 2, .max_tokens = 3, .expert_alignment = 4};
  }

  Batch batch = {{0, 2, 1, -1}, {1, 0}};
  OwnerMap owners;
  Counts counts;
};

TEST_F(RoutePlan, ByRankPutsSourcesOneAfterTheOther) {
  const RouteShape shape = shape_of(Layout::kByRank);

  const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, 0);

  EXPECT_EQ(plan.num_rows, 3);
  EXPECT_THAT(plan.source_offsets, ElementsAre(0, 2, 3));
  EXPECT_THAT(plan.tokens_from_rank, ElementsAre(2, 1));
  EXPECT_THAT(plan.rows_from_rank, ElementsAre(2, 1));
  EXPECT_THAT(plan.expert_counts, ElementsAre(2, 2));
  EXPECT_THAT(plan.aligned_expert_counts, ElementsAre(4, 4));
  EXPECT_THAT(plan.expert_offsets, ElementsAre(0, 2, 4));
  EXPECT_THAT(plan_num_rows(counts.of_all(), owners, shape), ElementsAre(3, 1));
  EXPECT_THAT(plan_bases(counts.of_all(), owners, shape, 1), ElementsAre(2, 1));
}

TEST_F(RoutePlan, ByExpertAlignsTheStarts) {
  const RouteShape shape = shape_of(Layout::kByExpert);

  const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, 0);

  EXPECT_EQ(plan.num_rows, 8);
  EXPECT_THAT(plan.expert_counts, ElementsAre(2, 2));
  EXPECT_THAT(plan.aligned_expert_counts, ElementsAre(4, 4));
  EXPECT_THAT(plan.expert_offsets, ElementsAre(0, 4, 8));
  EXPECT_THAT(plan.tokens_from_rank, ElementsAre(2, 1));
  EXPECT_THAT(plan.rows_from_rank, ElementsAre(2, 2));
  EXPECT_THAT(plan_num_rows(counts.of_all(), owners, shape), ElementsAre(8, 4));
  EXPECT_THAT(plan_bases(counts.of_all(), owners, shape, 0), ElementsAre(0, 4, 0, 4));
  EXPECT_THAT(plan_bases(counts.of_all(), owners, shape, 1), ElementsAre(1, 5, 1, 4));
}

TEST_F(RoutePlan, PaddedGivesEachExpertAFixedRegion) {
  const RouteShape shape = shape_of(Layout::kPadded);

  const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, 1);

  EXPECT_EQ(plan.num_rows, 12);
  EXPECT_THAT(plan.expert_counts, ElementsAre(1, 0));
  EXPECT_THAT(plan.expert_offsets, ElementsAre(0, 6, 12));
  EXPECT_THAT(plan.rows_from_rank, ElementsAre(1, 0));
  EXPECT_THAT(plan_num_rows(counts.of_all(), owners, shape), ElementsAre(12, 12));
  EXPECT_THAT(plan_bases(counts.of_all(), owners, shape, 1), ElementsAre(1, 7, 1, 6));
}

TEST_F(RoutePlan, ACapCutsTheLastExpertsShort) {
  RouteShape shape = shape_of(Layout::kByExpert);
  shape.row_cap = 5;

  const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, 0);

  EXPECT_EQ(plan.num_rows, 5);
  EXPECT_THAT(plan.expert_counts, ElementsAre(2, 1));
  EXPECT_THAT(plan.aligned_expert_counts, ElementsAre(4, 1));
  EXPECT_THAT(plan.expert_offsets, ElementsAre(0, 4, 5));
  EXPECT_THAT(plan.rows_from_rank, ElementsAre(2, 1));
  EXPECT_THAT(plan_num_rows(counts.of_all(), owners, shape), ElementsAre(5, 4));
}

TEST_F(RoutePlan, ACapCutsTheLastSourcesShort) {
  RouteShape shape = shape_of(Layout::kByRank);
  shape.row_cap = 1;

  const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, 0);

  EXPECT_EQ(plan.num_rows, 1);
  EXPECT_THAT(plan.source_offsets, ElementsAre(0, 1, 1));
  EXPECT_THAT(plan.rows_from_rank, ElementsAre(1, 0));
  EXPECT_THAT(plan.tokens_from_rank, ElementsAre(2, 1));
}

TEST_F(RoutePlan, DuplicatesThatOverfillAPaddedExpertAreOneErrorOnAllRanks) {
  const Batch crowded = {{3, 3, 3, 3}, {3, 3, 3, 3}};
  const Counts crowd(crowded, 2, owners);
  RouteShape shape = shape_of(Layout::kPadded);
  shape.max_tokens = 2;
  const std::string text =
      "expert 3 is selected 8 times by this batch, the padded layout holds 2 ranks x 2 max_tokens "
      "= 4 rows per expert";

  expect_error(ErrorCode::kInvalidArgument, text,
               [&] { (void)plan_num_rows(crowd.of_all(), owners, shape); });
  for (const int source : {0, 1}) {
    expect_error(ErrorCode::kInvalidArgument, text,
                 [&] { (void)plan_bases(crowd.of_all(), owners, shape, source); });
  }
}

// --- against the model -------------------------------------------------------------------------

// Every plan of every rank equals what walking the destinations in order finds.
void expect_model(const Batch& batch, const OwnerMap& owners, const RouteShape& shape) {
  SCOPED_TRACE("routing " + text_of(batch));
  const RowModel model(batch, owners, shape);
  const Counts counts(batch, shape.top_k, owners);
  const bool is_padded = shape.layout == Layout::kPadded;
  const std::int64_t cap = is_padded ? INT64_MAX : shape.row_cap;
  using Sent = std::tuple<int, std::int64_t, int, int, int, std::int64_t>;
  std::vector<Sent> expected;
  std::int64_t expected_dropped = 0;
  for (const ModelRow& row : model.rows) {
    if (row.row >= cap) {
      ++expected_dropped;
      continue;
    }
    expected.emplace_back(row.source, row.token, row.destination, row.k, row.slot, row.row);
  }
  std::ranges::sort(expected);

  std::vector<Sent> sent;  // in plan order, which must be sorted without our help
  std::int64_t dropped = 0;
  for (int source = 0; source < owners.num_ranks(); ++source) {
    const auto& topk = batch[static_cast<std::size_t>(source)];
    const SendPlan plan =
        plan_send(topk, owners, shape, plan_bases(counts.of_all(), owners, shape, source));
    dropped += plan.num_dropped;
    const std::int64_t num_tokens = static_cast<std::int64_t>(plan.token_begin.size()) - 1;
    ASSERT_EQ(num_tokens, static_cast<std::int64_t>(topk.size()) / shape.top_k);
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      for (const SendEntry& entry : plan.of_token(token)) {
        sent.emplace_back(source, token, entry.rank, entry.k, entry.slot, entry.row);
      }
    }
  }
  EXPECT_EQ(sent, expected);
  EXPECT_EQ(dropped, expected_dropped);

  const std::vector<std::int64_t> num_rows = plan_num_rows(counts.of_all(), owners, shape);
  for (int rank = 0; rank < owners.num_ranks(); ++rank) {
    const ReceivePlan plan = plan_receive(counts.of_all(), owners, shape, rank);
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(plan.num_rows, std::min(model.num_rows[at], cap));
    EXPECT_EQ(num_rows[at], plan.num_rows);
    std::vector<std::int64_t> rows_from(batch.size(), 0);
    std::vector<std::int64_t> expert_counts(owners.experts_of[at].size(), 0);
    for (const ModelRow& row : model.rows) {
      if (row.destination != rank || row.row >= cap) continue;
      ++rows_from[static_cast<std::size_t>(row.source)];
      if (shape.layout != Layout::kByRank)
        ++expert_counts[static_cast<std::size_t>(row.local_expert)];
    }
    EXPECT_EQ(plan.rows_from_rank, rows_from);
    std::int64_t offset = 0;
    for (std::size_t source = 0; source < batch.size(); ++source) {
      EXPECT_EQ(plan.tokens_from_rank[source], counts.of_all()[source].per_rank[at]);
      if (shape.layout != Layout::kByRank) continue;
      EXPECT_EQ(plan.source_offsets[source], offset);
      offset += rows_from[source];
    }
    if (shape.layout == Layout::kByRank) continue;
    EXPECT_EQ(plan.expert_counts, expert_counts);
    for (std::size_t local = 0; local < plan.expert_offsets.size(); ++local) {
      EXPECT_EQ(plan.expert_offsets[local], std::min(model.expert_starts[at][local], cap));
    }
  }
}

int below(std::mt19937& random, int bound) {
  return static_cast<int>(random() % static_cast<unsigned>(bound));
}

// Duplicates at will; about one selection in five is -1.
Batch random_batch(std::mt19937& random, int num_ranks, int top_k, int num_experts) {
  Batch batch(static_cast<std::size_t>(num_ranks));
  for (auto& ids : batch) {
    const int num_tokens = below(random, 6);
    for (int i = 0; i < num_tokens * top_k; ++i) {
      ids.push_back(below(random, 5) == 0 ? -1 : below(random, num_experts));
    }
  }
  return batch;
}

OwnerMap random_owners(std::mt19937& random, int num_experts, int num_ranks) {
  std::vector<int> owner(static_cast<std::size_t>(num_experts));
  for (int& rank : owner) rank = below(random, num_ranks);
  return make_owner_map(owner, num_ranks);
}

using GridPoint = std::tuple<int, int, Layout>;
class RoutePlanGrid : public testing::TestWithParam<GridPoint> {};

TEST_P(RoutePlanGrid, EqualsTheWalkOfEveryDestination) {
  const auto [num_ranks, top_k, layout] = GetParam();
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed * 1000 + static_cast<std::uint32_t>(num_ranks * 100 + top_k));
    const int num_experts = top_k + below(random, 9);
    const OwnerMap owners = random_owners(random, num_experts, num_ranks);
    const Batch batch = random_batch(random, num_ranks, top_k, num_experts);
    RouteShape shape{.layout = layout, .top_k = top_k};
    shape.max_tokens = 6 * top_k;  // room for any duplicates in kPadded
    shape.expert_alignment = 1 + below(random, 5);

    expect_model(batch, owners, shape);
    shape.row_cap = below(random, 12);
    expect_model(batch, owners, shape);
  }
}

TEST_P(RoutePlanGrid, HoldsForExtremeBatches) {
  const auto [num_ranks, top_k, layout] = GetParam();
  const auto num_sources = static_cast<std::size_t>(num_ranks);
  const auto width = static_cast<std::size_t>(top_k);
  const OwnerMap owners = make_block_owner_map(num_ranks * 2, num_ranks);
  const RouteShape shape{
      .layout = layout, .top_k = top_k, .max_tokens = 3 * top_k, .expert_alignment = 8};
  const std::int32_t last = owners.num_experts() - 1;

  const Batch none(num_sources);
  expect_model(none, owners, shape);
  expect_model(Batch(num_sources, std::vector<std::int32_t>(3 * width, -1)), owners, shape);
  expect_model(Batch(num_sources, std::vector<std::int32_t>(3 * width, last)), owners, shape);
  Batch one_active(num_sources);
  one_active.back().assign(3 * width, 0);
  expect_model(one_active, owners, shape);
}

INSTANTIATE_TEST_SUITE_P(
    AllShapes,
    RoutePlanGrid,
    testing::Combine(testing::Values(1, 2, 3, 4, 7, 8),
                     testing::Values(1, 2, 8, 16, 32),
                     testing::Values(Layout::kByRank, Layout::kByExpert, Layout::kPadded)));

// --- at full size ------------------------------------------------------------------------------

// Every source has the same two tokens, so that each number can be computed by hand, and the rank
// set of a token needs every word of the 2048 bits: token 0 goes to 32 ranks 64 apart, token 1 has
// all its experts on ranks 2032..2047, two on each.
TEST(RoutePlanAtFullSize, KeepsEverySlotOf2048Ranks) {
  constexpr int kRanks = 2048;
  constexpr int kExperts = 4096;
  constexpr int kTopk = 32;
  const OwnerMap owners = make_block_owner_map(kExperts, kRanks);
  std::vector<std::int32_t> ids;
  for (int k = 0; k < kTopk; ++k) ids.push_back((kTopk - 1 - k) * 128);
  for (int k = 0; k < kTopk; ++k) ids.push_back(kExperts - 1 - k);
  const Batch batch(kRanks, ids);
  const Counts counts(batch, kTopk, owners);
  const int source = 1500;

  RouteShape shape{.layout = Layout::kByRank, .top_k = kTopk, .max_tokens = 2};
  const SendPlan by_rank =
      plan_send(ids, owners, shape, plan_bases(counts.of_all(), owners, shape, source));
  ASSERT_EQ(by_rank.of_token(0).size(), 32U);
  ASSERT_EQ(by_rank.of_token(1).size(), 16U);
  for (int i = 0; i < 32; ++i) {
    const SendEntry& entry = by_rank.of_token(0)[static_cast<std::size_t>(i)];
    EXPECT_EQ(entry.rank, i * 64);
    EXPECT_EQ(entry.row, source);  // one row from each earlier source
    EXPECT_EQ(entry.slot, i);
    EXPECT_EQ(entry.k, kTopk - 1 - i);
  }
  for (int i = 0; i < 16; ++i) {
    const SendEntry& entry = by_rank.of_token(1)[static_cast<std::size_t>(i)];
    EXPECT_EQ(entry.rank, 2032 + i);
    EXPECT_EQ(entry.row, source);
    EXPECT_EQ(entry.slot, i);
    EXPECT_EQ(entry.k, kTopk - 1 - 2 * i);
  }

  shape.layout = Layout::kByExpert;
  shape.expert_alignment = 4096;
  const SendPlan by_expert =
      plan_send(ids, owners, shape, plan_bases(counts.of_all(), owners, shape, source));
  ASSERT_EQ(by_expert.of_token(1).size(), 32U);
  for (int i = 0; i < 32; ++i) {
    const SendEntry& entry = by_expert.of_token(1)[static_cast<std::size_t>(i)];
    EXPECT_EQ(entry.rank, 2032 + i / 2);
    EXPECT_EQ(entry.k, 31 - 2 * (i / 2) - (i % 2 == 0 ? 1 : 0));
    const int local_expert = entry.k % 2 == 0 ? 1 : 0;
    EXPECT_EQ(entry.row, local_expert * 4096 + source);
  }
  const ReceivePlan received = plan_receive(counts.of_all(), owners, shape, 2040);
  EXPECT_EQ(received.num_rows, 2 * 4096);
  EXPECT_THAT(received.expert_counts, ElementsAre(2048, 2048));
  EXPECT_THAT(received.tokens_from_rank, Each(1));
  EXPECT_THAT(received.rows_from_rank, Each(2));
}

}  // namespace
}  // namespace ferry::plan
