// Where rows land, what stands beside them, and the counts.

#include <gmock/gmock.h>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

using support::make_routing;
using ::testing::ElementsAre;

Scenario scenario_of(Routing routing, Layout layout) {
  Scenario scenario;
  scenario.routing = std::move(routing);
  scenario.layout = layout;
  return scenario;
}

std::vector<std::int64_t> integers(const HostTensor& tensor, std::int64_t count) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(tensor.int_at(i));
  return values;
}

// Rank 0 owns experts 0 and 1, rank 1 owns 2 and 3.
Routing two_ranks() { return make_routing(4, {{{0, 1}, {2, 0}, {3, -1}}, {{1, 3}}}); }

}  // namespace

TEST_P(DispatchContract, SendsATokenOnceToARankThatHoldsTwoOfItsExperts) {
  const Scenario scenario = scenario_of(make_routing(4, {{{0, 1}}, {{1, 0}}}), Layout::kByRank);

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_THAT(integers(got[0].received.num_rows, 1), ElementsAre(2));
  EXPECT_THAT(integers(got[1].received.num_rows, 1), ElementsAre(0));
  expect_right(scenario, got, {.combines = false});
}

TEST_P(DispatchContract, TranslatesIdsToLocalOnesAndMasksTheOthers) {
  const Scenario scenario = scenario_of(two_ranks(), Layout::kByRank);

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_THAT(integers(got[0].received.num_rows, 1), ElementsAre(3));
  EXPECT_THAT(integers(got[0].received.topk_idx, 6), ElementsAre(0, 1, -1, 0, 1, -1));
  EXPECT_THAT(integers(got[0].received.source_offsets, 3), ElementsAre(0, 2, 3));
  EXPECT_THAT(integers(got[1].received.topk_idx, 6), ElementsAre(0, -1, 1, -1, -1, 1));
  EXPECT_THAT(integers(got[1].received.row_source, 6), ElementsAre(1, 1, 2, 0, 0, 1));
}

TEST_P(DispatchContract, GroupsRowsByExpertAndSortsThemBySource) {
  const Scenario scenario = scenario_of(two_ranks(), Layout::kByExpert);

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_THAT(integers(got[0].received.expert_counts, 2), ElementsAre(2, 2));
  EXPECT_THAT(integers(got[0].received.row_expert, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(integers(got[0].received.row_source, 8), ElementsAre(0, 0, 1, 1, 0, 1, 0, 0));
  EXPECT_THAT(integers(got[1].received.expert_offsets, 3), ElementsAre(0, 1, 3));
}

TEST_P(DispatchContract, AlignsExpertStartsAndReportsRealCounts) {
  Scenario scenario = scenario_of(two_ranks(), Layout::kByExpert);
  scenario.alignment = 4;

  const auto got = run(engine(), scenario);

  EXPECT_THAT(integers(got[0].received.expert_counts, 2), ElementsAre(2, 2));
  EXPECT_THAT(integers(got[0].received.expert_offsets, 3), ElementsAre(0, 4, 8));
  EXPECT_THAT(integers(got[0].received.row_expert, 8), ElementsAre(0, 0, -1, -1, 1, 1, -1, -1));
  expect_right(scenario, got);
}

TEST_P(DispatchContract, DeliversMixedBatchesInEveryLayout) {
  for (const Layout layout : kLayouts) check(mixed_scenario(layout));
}

TEST_P(DispatchContract, TellsTheHostTheCountsInExactSizing) {
  if (!is_exact()) GTEST_SKIP() << "worst-case sizing has no host counts";
  Scenario scenario = scenario_of(two_ranks(), Layout::kByExpert);
  scenario.alignment = 8;

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_THAT(got[1].route_expert_counts, ElementsAre(1, 2));
  EXPECT_THAT(got[1].route_aligned_counts, ElementsAre(8, 8));
  EXPECT_THAT(got[1].route_tokens_from_rank, ElementsAre(2, 1));
  EXPECT_EQ(got[1].route_num_recv_rows, 16);
}

TEST_P(DispatchContract, RefusesToTellTheHostCountsThatItDoesNotHave) {
  if (is_exact()) GTEST_SKIP() << "exact sizing has host counts";
  const Scenario scenario = mixed_scenario(Layout::kByRank);

  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    const Route route = rank.route();
    EXPECT_TRUE(support::attempt([&] { (void)route.num_recv_rows(); }).failed);
    EXPECT_TRUE(support::attempt([&] { (void)route.expert_counts(); }).failed);
    EXPECT_TRUE(support::attempt([&] { (void)route.aligned_expert_counts(); }).failed);
    EXPECT_TRUE(support::attempt([&] { (void)route.tokens_from_rank(); }).failed);
  });

  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

TEST_P(DispatchContract, OwnsExactlyAsManyRowsAsArriveInExactSizing) {
  if (!is_exact()) GTEST_SKIP() << "worst-case sizing owns the worst case";
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert}) {
    Scenario scenario = mixed_scenario(layout);
    scenario.alignment = layout == Layout::kByExpert ? 4 : 1;

    const auto got = run(engine(), scenario, {.combines = false});

    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(got[static_cast<std::size_t>(rank)].received.tokens.num_rows(),
                expected_rows(scenario, rank).num_rows);
  }
}

TEST_P(DispatchContract, ZeroesGapsWhenAsked) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.alignment = layout == Layout::kByExpert ? 8 : 1;
    scenario.gaps = Gaps::kZeroed;

    check(scenario);
  }
}

TEST_P(DispatchContract, AcceptsInt32IdsAndDeliversTheSameType) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.topk_dtype = DType::kInt32;

    check(scenario);
  }
}

TEST_P(DispatchContract, WorksWithoutWeights) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.has_weights = false;

    const auto got = run(engine(), scenario);

    EXPECT_FALSE(got[0].received.topk_weights.is_given());
    expect_right(scenario, got);
  }
}

TEST_P(DispatchContract, ReadsStridedInputs) {
  const Scenario scenario = mixed_scenario(Layout::kByRank);
  std::vector<Received> received(3);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    // Every input is the left part of a tensor that is 16 elements wider.
    const auto widened = [&](const HostTensor& narrow) {
      HostTensor wide(narrow.dtype(), {narrow.num_rows(), narrow.row_elements() + 16});
      wide.fill(std::byte{0x5A});
      for (std::int64_t row = 0; row < narrow.num_rows(); ++row)
        std::copy_n(narrow.row(row), narrow.row_bytes(), wide.row(row));
      TensorView view = rank.memory().place(wide);
      view.shape[1] = narrow.row_elements();
      return view;
    };
    const Route route = rank.exchange().route(widened(topk_of(scenario, rank.rank())),
                                              {.layout = {}, .sizing = engine().sizing});
    DispatchOptions options;
    options.topk_weights = widened(weights_of(scenario, rank.rank()));
    const Delivery delivery =
        rank.exchange().dispatch(route, widened(tokens_of(scenario, rank.rank())), options);
    received[static_cast<std::size_t>(rank.rank())] = fetch(rank.memory(), delivery);
  });

  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(delivery_problem(scenario, rank, received[static_cast<std::size_t>(rank)]), "");
}

TEST_P(DispatchContract, ServesLayoutsThatDifferFromTheExchanges) {
  const Scenario by_expert = mixed_scenario(Layout::kByExpert);
  Scenario by_rank = by_expert;
  by_rank.layout = Layout::kByRank;
  std::vector<Received> received(3);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), by_expert);
    const Route route = rank.route(&by_rank);
    EXPECT_EQ(route.layout(), Layout::kByRank);
    received[static_cast<std::size_t>(rank.rank())] =
        fetch(rank.memory(), rank.dispatch(route, &by_rank));
  });

  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(delivery_problem(by_rank, rank, received[static_cast<std::size_t>(rank)]), "");
}

TEST_P(DispatchContract, CountsEachOccurrenceOfAnAcceptedDuplicate) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = scenario_of(make_routing(4, {{{3, 3, 1}}, {{0, 0, 0}, {2, 0, 2}}}), layout);
    scenario.duplicates = Duplicates::kAccept;
    scenario.max_tokens = 4;

    check(scenario);
  }
}

}  // namespace ferry::contract
