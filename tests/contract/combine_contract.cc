// Which rows are summed for a token, in which order, and where they may lie.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

constexpr DType kSummed[] = {DType::kBf16, DType::kFp16, DType::kFp32};

Scenario rough_scenario(Layout layout) {
  Scenario scenario = mixed_scenario(layout);
  scenario.has_rough_values = true;
  return scenario;
}

std::vector<HostTensor> sums(const EngineUnderTest& engine, const Scenario& scenario) {
  std::vector<HostTensor> out;
  for (RankResult& result : run(engine, scenario)) out.push_back(std::move(result.combined.out));
  return out;
}

}  // namespace

TEST_P(CombineContract, SumsTheRowsOfEachToken) {
  for (const Layout layout : kLayouts)
    for (const DType dtype : kSummed) {
      Scenario scenario = rough_scenario(layout);
      scenario.sum_dtype = dtype;

      check(scenario);
    }
}

TEST_P(CombineContract, WeighsTheRowsOfEachTokenByAscendingK) {
  for (const Layout layout : {Layout::kByExpert, Layout::kPadded}) {
    for (const DType dtype : kSummed) {
      Scenario scenario = rough_scenario(layout);
      scenario.sum_dtype = dtype;
      scenario.is_weighted = true;
      for (auto& weights : scenario.routing.weights)
        for (float& weight : weights) weight *= 1.1F;  // products round

      check(scenario);
    }
  }
}

TEST_P(CombineContract, AddsOneOrTwoBiasesFirst) {
  for (const Layout layout : kLayouts) {
    for (const int num_biases : {1, 2}) {
      Scenario scenario = rough_scenario(layout);
      scenario.num_biases = num_biases;
      scenario.is_weighted = layout != Layout::kByRank;

      check(scenario);
    }
  }
}

TEST_P(CombineContract, GivesTheBiasToATokenWithoutExperts) {
  for (const Layout layout : kLayouts) {
    Scenario scenario;
    scenario.routing = support::make_routing(4, {{{-1, -1}, {0, 3}}, {{-1, -1}}});
    scenario.layout = layout;
    scenario.num_biases = 1;

    const auto got = run(engine(), scenario);

    EXPECT_EQ(support::first_difference(got[1].combined.out, bias_of(scenario, 1, 0)), "");
    expect_right(scenario, got);
  }
}

TEST_P(CombineContract, PullsAndPushesToTheSameBits) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = rough_scenario(layout);
    scenario.is_weighted = layout != Layout::kByRank;
    scenario.y_in_arena = true;

    scenario.form = CombineForm::kPull;
    const auto pulled = sums(engine(), scenario);
    scenario.form = CombineForm::kPush;
    const auto pushed = sums(engine(), scenario);

    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(
          support::first_difference(pulled[rank], expected_sum(scenario, static_cast<int>(rank))),
          "")
          << layout_name(layout);
      EXPECT_EQ(support::first_difference(pushed[rank], pulled[rank]), "") << layout_name(layout);
    }
  }
}

TEST_P(CombineContract, PicksAFormByItselfWhereverRowsLie) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = rough_scenario(layout);
    scenario.y_in_arena = true;

    check(scenario);
  }
}

TEST_P(CombineContract, SumsInEitherRowOrder) {
  // fp32 rows of many magnitudes: the two orders give different bits.
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = 16,
                                              .top_k = 8,
                                              .num_tokens = {5, 7, 6, 3},
                                              .pattern = support::Pattern::kUniform,
                                              .expert_owner = {}},
                                             7);
  scenario.has_rough_values = true;
  scenario.sum_dtype = DType::kFp32;
  for (const Layout layout : kLayouts) {
    scenario.layout = layout;
    scenario.row_order = RowOrder::kRankAscending;
    const HostTensor by_rank = expected_sum(scenario, 0);
    check(scenario);
    scenario.row_order = RowOrder::kHighestKAscending;
    EXPECT_NE(by_rank.bytes(), expected_sum(scenario, 0).bytes()) << "the input shows no order";
    check(scenario);
  }
}

TEST_P(CombineContract, GivesTheSameBitsOnEveryRun) {
  const Scenario scenario = rough_scenario(Layout::kByExpert);

  const auto first = sums(engine(), scenario);
  const auto second = sums(engine(), scenario);

  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(first[rank].bytes(), second[rank].bytes());
}

TEST_P(CombineContract, GivesTheSameBitsWithAnyNumberOfThreads) {
  const Scenario scenario = rough_scenario(Layout::kByRank);
  std::vector<HostTensor> out(3);

  support::run_ranks(3, [&](Group group) {
    auto memory = engine().make_memory(group.rank());
    ExchangeConfig config = config_of(scenario, engine(), group.rank());
    config.num_threads = 1 + group.rank();
    Exchange exchange(group, config);
    const Route route = exchange.route(memory->place(topk_of(scenario, group.rank())),
                                       {.layout = {}, .sizing = engine().sizing});
    const Delivery delivery =
        exchange.dispatch(route, memory->place(tokens_of(scenario, group.rank())));
    const TensorView tokens = delivery.tokens();
    const TensorView y =
        memory->place(rows_of(scenario, group.rank(), {tokens.shape[0], tokens.shape[1]}));
    const TensorView sum = memory->place(
        HostTensor(DType::kBf16, {scenario.routing.num_tokens(group.rank()), scenario.hidden}));
    exchange.combine(route, y, sum);
    out[static_cast<std::size_t>(group.rank())] = memory->fetch(sum);
  });

  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(support::first_difference(out[static_cast<std::size_t>(rank)],
                                        expected_sum(scenario, rank)),
              "");
}

TEST_P(CombineContract, SumsAcceptedDuplicatesOncePerOccurrence) {
  for (const Layout layout : kLayouts) {
    Scenario scenario;
    scenario.routing = support::random_routing({.num_experts = 4,
                                                .top_k = 4,
                                                .num_tokens = {6, 5},
                                                .pattern = support::Pattern::kWithDuplicates,
                                                .expert_owner = {}},
                                               3);
    scenario.layout = layout;
    scenario.duplicates = Duplicates::kAccept;
    scenario.max_tokens = 24;  // padded holds R * max_tokens rows per expert, repeats included
    scenario.is_weighted = layout != Layout::kByRank;

    check(scenario);
  }
}

}  // namespace ferry::contract
