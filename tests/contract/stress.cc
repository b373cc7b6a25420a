// Many rounds at changing shapes, compared exactly, with slow consumers and micro-batches in
// flight: what a missing grant, a reused epoch or a lost fence would show in.

#include <thread>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 100;
#else
constexpr int kRounds = 1000;
#endif
constexpr int kNumRanks = 4;
constexpr std::int64_t kMaxTokens = 6;

// The shape and values of one round, the same on every rank.
Scenario round_scenario(int round) {
  constexpr std::int64_t kHidden[] = {8, 64, 24, 128, 32};
  constexpr support::Pattern kPatterns[] = {
      support::Pattern::kUniform, support::Pattern::kSomeMasked, support::Pattern::kOneExpert};
  std::vector<std::int64_t> num_tokens;
  for (int rank = 0; rank < kNumRanks; ++rank)
    num_tokens.push_back(support::small_integer(5, static_cast<std::uint64_t>(round),
                                                static_cast<std::uint64_t>(rank), 3) +
                         3);
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = 8,
                                              .top_k = 2,
                                              .num_tokens = num_tokens,
                                              .pattern = kPatterns[round % 3],
                                              .expert_owner = {}},
                                             static_cast<std::uint64_t>(round));
  scenario.layout = kLayouts[round / 3 % 3];
  scenario.hidden = kHidden[round % 5];
  scenario.max_tokens = kMaxTokens;
  scenario.is_weighted = scenario.layout != Layout::kByRank && round % 2 == 0;
  scenario.seed = static_cast<std::uint64_t>(round) + 1;
  return scenario;
}

Scenario widest_scenario() {
  Scenario scenario = round_scenario(0);
  scenario.layout = Layout::kPadded;
  scenario.hidden = 128;
  return scenario;
}

// One rank in four rounds out of a hundred is 5 ms late with what it received.
void maybe_dawdle(int rank, int round) {
  if (round % 25 == 7 && rank == round / 25 % kNumRanks)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

TEST_P(Stress, SurvivesAThousandRoundsAtChangingShapes) {
  const Scenario widest = widest_scenario();
  support::run_ranks(kNumRanks, [&](Group group) {
    RankUnderTest rank(group, engine(), widest);
    for (int round = 0; round < kRounds; ++round) {
      const Scenario scenario = round_scenario(round);
      RankUnderTest::Combined combined;
      {
        const Route route = rank.route(&scenario);
        const Delivery delivery = rank.dispatch(route, &scenario);
        maybe_dawdle(rank.rank(), round);
        ASSERT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "")
            << "rank " << rank.rank() << " round " << round << " " << describe(scenario);
        combined = rank.combine(route, delivery, &scenario);
      }
      ASSERT_EQ(combine_problem(scenario, rank.rank(), combined), "")
          << "rank " << rank.rank() << " round " << round << " " << describe(scenario);
      rank.memory().release();
    }
  });
}

TEST_P(Stress, KeepsMicroBatchesApartWhileOneConsumerIsSlow) {
  const Scenario widest = widest_scenario();
  support::run_ranks(kNumRanks, [&](Group group) {
    RankUnderTest rank(group, engine(), widest);
    const int me = rank.rank();
    for (int round = 0; round < kRounds; round += 2) {
      const Scenario batches[] = {round_scenario(round), round_scenario(round + 1)};
      std::vector<Route> routes;
      std::vector<Pending<Delivery>> dispatches;
      for (const Scenario& batch : batches) {
        routes.push_back(rank.route(&batch));
        dispatches.push_back(
            rank.exchange().begin_dispatch(routes.back(), rank.memory().place(tokens_of(batch, me)),
                                           rank.dispatch_options(&batch)));
      }
      std::vector<RankUnderTest::CombineCall> calls;
      std::vector<Pending<void>> combines;
      for (std::size_t i = 0; i < 2; ++i) {
        const Delivery delivery = dispatches[i].finish();
        maybe_dawdle(me, round + static_cast<int>(i));
        ASSERT_EQ(delivery_problem(batches[i], me, fetch(rank.memory(), delivery)), "")
            << "rank " << me << " round " << round << " " << describe(batches[i]);
        calls.push_back(rank.combine_call(delivery, &batches[i]));
        combines.push_back(
            rank.exchange().begin_combine(routes[i], calls[i].y, calls[i].out, calls[i].options));
      }
      for (std::size_t i = 0; i < 2; ++i) {
        combines[i].finish();
        ASSERT_EQ(combine_problem(batches[i], me, rank.fetch_combined(calls[i])), "")
            << "rank " << me << " round " << round << " " << describe(batches[i]);
      }
      rank.memory().release();
    }
  });
}

TEST_P(Stress, ReusesOneRouteWithoutABarrierBetweenDispatches) {
  // Nothing but grants keeps a fast sender from overwriting rows that a slow rank still reads.
  const Scenario shape = round_scenario(1);
  const Scenario widest = widest_scenario();
  support::run_ranks(kNumRanks, [&](Group group) {
    RankUnderTest rank(group, engine(), widest);
    const Route route = rank.route(&shape);
    std::vector<std::pair<Scenario, Delivery>> held;
    for (int round = 0; round < kRounds; ++round) {
      Scenario scenario = shape;
      scenario.seed = static_cast<std::uint64_t>(round) + 100;
      held.emplace_back(scenario, rank.dispatch(route, &scenario));
      maybe_dawdle(rank.rank(), round);
      if (held.size() < 3) continue;
      // The oldest of three deliveries is still whole.
      ASSERT_EQ(delivery_problem(held[0].first, rank.rank(), fetch(rank.memory(), held[0].second)),
                "")
          << "rank " << rank.rank() << " round " << round;
      held.erase(held.begin());
      rank.memory().release();
    }
  });
}

}  // namespace ferry::contract
