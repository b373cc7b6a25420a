// The edge cases that any dispatch and combine must survive, after field reports; the number is the
// row of that table. Here: what the batch holds. How calls follow each other: edge_cases_calls.cc.
// In neither: 23 to 25 and 32 (torch, events, graphs, NVLink), 30 (one capability only).

#include <limits>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

using support::Pattern;

Scenario fp8_of(Scenario scenario) {
  scenario.quantize = Quantize::kFp8;
  scenario.hidden = 256;
  return scenario;
}

}  // namespace

TEST_P(EdgeCases, Case01ZeroTokensOnOneRank) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = random_scenario(layout, {0, 5, 3}, Pattern::kUniform);
    check(scenario);
    scenario.returns_weights = true;
    check(fp8_of(scenario));

    // The empty tensors have null pointers.
    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      if (rank.rank() != 0) {
        const Route route = rank.route();
        (void)rank.combine(route, rank.dispatch(route));
        return;
      }
      const Device device = rank.exchange().config().device;
      const Route route =
          rank.exchange().route(TensorView::dense(nullptr, DType::kInt64, {0, 3}, device),
                                {.layout = {}, .sizing = engine().sizing});
      DispatchOptions options;
      options.topk_weights = TensorView::dense(nullptr, DType::kFp32, {0, 3}, device);
      const Delivery delivery = rank.exchange().dispatch(
          route, TensorView::dense(nullptr, DType::kBf16, {0, 64}, device), options);
      auto call = rank.combine_call(delivery);
      call.options.combined_weights = TensorView::dense(nullptr, DType::kFp32, {0, 3}, device);
      rank.exchange().combine(
          route, call.y, TensorView::dense(nullptr, DType::kBf16, {0, 64}, device), call.options);
      EXPECT_EQ(delivery_problem(scenario, 0, fetch(rank.memory(), delivery)), "");
    });
  }
}

TEST_P(EdgeCases, Case02ZeroTokensOnAllRanks) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = random_scenario(layout, {0, 0, 0}, Pattern::kUniform);
    check(scenario);
    scenario.alignment = 16;
    check(fp8_of(scenario));
  }
}

TEST_P(EdgeCases, Case02ARankThatReceivesNothing) {
  for (const Layout layout : kLayouts)
    check(random_scenario(layout, {4, 5, 6}, Pattern::kOneExpert));  // ranks 0 and 1 get nothing
}

TEST_P(EdgeCases, Case03AllTokensToOneExpert) {
  for (const Layout layout : kLayouts) {
    check(random_scenario(layout, {64, 50, 64, 1}, Pattern::kOneExpert, 8, 2));
    check(random_scenario(layout, {64, 50, 64, 1}, Pattern::kSameExperts, 64, 4));
  }
}

TEST_P(EdgeCases, Case04MaskedSlotsAndMaskedTokens) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = random_scenario(layout, {4, 5, 6}, Pattern::kAllMasked);
    check(scenario);
    scenario.num_biases = 1;
    check(scenario);
    scenario = random_scenario(layout, {14, 15, 16}, Pattern::kSomeMasked);
    for (std::size_t rank = 0; rank < 3; ++rank)
      for (std::size_t i = 0; i < scenario.routing.topk[rank].size(); ++i)
        if (scenario.routing.topk[rank][i] < 0)
          scenario.routing.weights[rank][i] = std::numeric_limits<float>::quiet_NaN();
    scenario.is_weighted = layout != Layout::kByRank;
    check(scenario);
  }
}

TEST_P(EdgeCases, Case05DuplicateExperts) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = random_scenario(layout, {9, 8, 7}, Pattern::kWithDuplicates, 6, 5);
    const auto outcomes = attempt_on_all(
        engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(outcome.message, outcomes[0].message);
    }

    scenario.duplicates = Duplicates::kAccept;
    scenario.max_tokens = 40;  // padded holds R * max_tokens rows per expert, repeats included
    scenario.is_weighted = layout != Layout::kByRank;
    check(scenario);
  }
}

TEST_P(EdgeCases, Case06IdsOutOfRange) {
  for (const int id : {12, -2, std::numeric_limits<std::int32_t>::max(),
                       std::numeric_limits<std::int32_t>::min()}) {
    Scenario scenario = random_scenario(Layout::kPadded, {4, 4, 4}, Pattern::kUniform);
    scenario.routing.topk[2][7] = id;

    const auto outcomes = attempt_on_all(
        engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });

    for (const auto& outcome : outcomes)
      EXPECT_EQ(outcome.message, "rank 2 token 2: topk_idx[2, 1] is " + std::to_string(id) +
                                     ", expected -1 or 0..11");
  }
}

TEST_P(EdgeCases, Case07BothIndexTypes) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Scenario scenario = random_scenario(Layout::kByRank, {4, 5, 6}, Pattern::kSomeMasked);
    scenario.topk_dtype = dtype;
    check(scenario);
  }
}

TEST_P(EdgeCases, Case08WeightsThatAreNotFloat32) {
  const auto outcomes = attempt_on_all(
      engine(), random_scenario(Layout::kByRank, {4, 5, 6}, Pattern::kUniform),
      [](RankUnderTest& rank) {
        DispatchOptions options = rank.dispatch_options();
        options.topk_weights.dtype = DType::kBf16;
        const Scenario scenario = random_scenario(Layout::kByRank, {4, 5, 6}, Pattern::kUniform);
        (void)rank.exchange().dispatch(
            rank.route(), rank.memory().place(tokens_of(scenario, rank.rank())), options);
      });
  for (const auto& outcome : outcomes)
    EXPECT_NE(outcome.message.find("topk_weights"), std::string::npos) << outcome.message;
}

TEST_P(EdgeCases, Case09HiddenSizesThatAreNoRoundNumbers) {
  for (const std::int64_t hidden : {8, 24, 1536, 2048, 2880, 3584})
    for (const Layout layout : kLayouts) {
      Scenario scenario = random_scenario(layout, {3, 2, 4}, Pattern::kUniform);
      scenario.hidden = hidden;
      check(scenario);
    }
}

TEST_P(EdgeCases, Case10TopkUpTo32) {
  for (const int top_k : {10, 16, 32})
    for (const Layout layout : kLayouts)
      check(random_scenario(layout, {3, 2, 4}, Pattern::kUniform, 33, top_k));
}

TEST_P(EdgeCases, Case11ExpertsThatDoNotDivide) {
  for (const Layout layout : kLayouts)
    check(random_scenario(layout, {3, 2, 4}, Pattern::kUniform, 17, 4));
}

TEST_P(EdgeCases, Case12TooManyTokensOnOneRank) {
  Scenario scenario = random_scenario(Layout::kByRank, {4, 9, 4}, Pattern::kUniform);
  scenario.max_tokens = 8;
  const auto outcomes = attempt_on_all(
      engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message, outcomes[0].message);
  }
}

}  // namespace ferry::contract
