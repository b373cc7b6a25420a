// begin and finish: micro-batches in flight, the limit of three, finishing in any order.

#include <optional>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

Scenario batch(Layout layout, std::uint64_t seed) {
  Scenario scenario = mixed_scenario(layout);
  scenario.routing = support::random_routing({.num_experts = 12,
                                              .top_k = 3,
                                              .num_tokens = support::uneven_tokens(3, 9),
                                              .pattern = support::Pattern::kSomeMasked,
                                              .expert_owner = {}},
                                             seed);
  scenario.seed = seed;
  scenario.max_tokens = 9;
  return scenario;
}

Pending<Delivery> begin_dispatch(RankUnderTest& rank, const Route& route, const Scenario& batch) {
  return rank.exchange().begin_dispatch(route, rank.memory().place(tokens_of(batch, rank.rank())),
                                        rank.dispatch_options(&batch));
}

}  // namespace

TEST_P(SplitContract, KeepsTwoMicroBatchesInFlight) {
  for (const Layout layout : kLayouts) {
    const Scenario first = batch(layout, 1);
    const Scenario second = batch(layout, 2);

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), first);
      const Route routes[] = {rank.route(&first), rank.route(&second)};
      auto dispatch_first = begin_dispatch(rank, routes[0], first);
      auto dispatch_second = begin_dispatch(rank, routes[1], second);
      const Delivery delivery_first = dispatch_first.finish();
      const auto call_first = rank.combine_call(delivery_first, &first);
      auto combine_first = rank.exchange().begin_combine(routes[0], call_first.y, call_first.out,
                                                         call_first.options);
      const Delivery delivery_second = dispatch_second.finish();
      const auto call_second = rank.combine_call(delivery_second, &second);
      auto combine_second = rank.exchange().begin_combine(routes[1], call_second.y, call_second.out,
                                                          call_second.options);
      combine_first.finish();
      combine_second.finish();

      EXPECT_EQ(delivery_problem(first, rank.rank(), fetch(rank.memory(), delivery_first)), "");
      EXPECT_EQ(delivery_problem(second, rank.rank(), fetch(rank.memory(), delivery_second)), "");
      EXPECT_EQ(combine_problem(first, rank.rank(), rank.fetch_combined(call_first)), "");
      EXPECT_EQ(combine_problem(second, rank.rank(), rank.fetch_combined(call_second)), "");
    });
  }
}

TEST_P(SplitContract, KeepsRowWeightsOfTwoPullsApart) {
  for (const Layout layout : kLayouts) {
    Scenario batches[] = {batch(layout, 11), batch(layout, 12)};
    for (Scenario& scenario : batches) {
      scenario.form = CombineForm::kPull;
      scenario.y_in_arena = true;
      scenario.returns_weights = true;
      scenario.arena_bytes = 1 << 20;
    }
    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), batches[0]);
      for (int round = 0; round < 20; ++round) {
        std::vector<Route> routes;
        std::vector<RankUnderTest::CombineCall> calls;
        for (const Scenario& scenario : batches) {
          routes.push_back(rank.route(&scenario));
          calls.push_back(rank.combine_call(rank.dispatch(routes.back(), &scenario), &scenario));
        }
        std::vector<Pending<void>> pending;
        for (std::size_t i = 0; i < 2; ++i)
          pending.push_back(
              rank.exchange().begin_combine(routes[i], calls[i].y, calls[i].out, calls[i].options));
        for (std::size_t i = 0; i < 2; ++i) {
          pending[i].finish();
          ASSERT_EQ(combine_problem(batches[i], rank.rank(), rank.fetch_combined(calls[i])), "")
              << "round " << round;
          rank.exchange().deallocate(calls[i].y.data);
        }
      }
    });
  }
}

TEST_P(SplitContract, FinishesInAnyOrder) {
  const Scenario scenario = batch(Layout::kByExpert, 3);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    auto first = begin_dispatch(rank, route, scenario);
    auto second = begin_dispatch(rank, route, scenario);
    auto third = begin_dispatch(rank, route, scenario);

    // Each rank finishes in another order.
    std::vector<Pending<Delivery>*> order = {&first, &second, &third};
    std::rotate(order.begin(), order.begin() + rank.rank(), order.end());
    for (Pending<Delivery>* pending : order)
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), pending->finish())),
                "");
  });
}

TEST_P(SplitContract, KeepsAnOldDispatchWholeWhileNewerOperationsRun) {
  // The old one's regions, headers and grants must not be taken for those of later operations.
  const Scenario old_batch = batch(Layout::kByExpert, 21);
  const Scenario new_batch = batch(Layout::kByExpert, 22);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), old_batch);
    const Route old_route = rank.route(&old_batch);
    auto old_dispatch = begin_dispatch(rank, old_route, old_batch);
    Delivery delivery;
    for (int i = 0; i < 6; ++i) {
      const Route route = rank.route(&new_batch);
      delivery = begin_dispatch(rank, route, new_batch).finish();
      EXPECT_EQ(combine_problem(new_batch, rank.rank(), rank.combine(route, delivery, &new_batch)),
                "");
    }

    const Delivery old_delivery = old_dispatch.finish();

    EXPECT_EQ(delivery_problem(old_batch, rank.rank(), fetch(rank.memory(), old_delivery)), "");
    EXPECT_EQ(delivery_problem(new_batch, rank.rank(), fetch(rank.memory(), delivery)), "");
  });
}

TEST_P(SplitContract, KeepsAnOldCombineWholeWhileNewerOperationsRun) {
  const Scenario old_batch = batch(Layout::kByExpert, 23);
  const Scenario new_batch = batch(Layout::kByExpert, 24);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), old_batch);
    const Route old_route = rank.route(&old_batch);
    const auto old_call = rank.combine_call(rank.dispatch(old_route, &old_batch), &old_batch);
    auto old_combine =
        rank.exchange().begin_combine(old_route, old_call.y, old_call.out, old_call.options);
    for (int i = 0; i < 6; ++i) {
      const Route route = rank.route(&new_batch);
      const Delivery delivery = rank.dispatch(route, &new_batch);
      EXPECT_EQ(combine_problem(new_batch, rank.rank(), rank.combine(route, delivery, &new_batch)),
                "");
    }

    old_combine.finish();

    EXPECT_EQ(combine_problem(old_batch, rank.rank(), rank.fetch_combined(old_call)), "");
  });
}

TEST_P(SplitContract, RefusesAFourthOutstandingOperation) {
  const Scenario scenario = batch(Layout::kByRank, 4);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    auto first = begin_dispatch(rank, route, scenario);
    auto second = begin_dispatch(rank, route, scenario);
    auto third = begin_dispatch(rank, route, scenario);

    const auto outcome =
        support::attempt([&] { auto fourth = begin_dispatch(rank, route, scenario); });

    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("outstanding"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("3"), std::string::npos) << outcome.message;
    for (Pending<Delivery>* pending : {&first, &second, &third})
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), pending->finish())),
                "");
    EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), rank.dispatch(route))),
              "");
  });
}

TEST_P(SplitContract, FinishesADroppedOperationFirst) {
  const Scenario scenario = batch(Layout::kByRank, 5);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    for (int i = 0; i < 8; ++i) {
      auto dropped = begin_dispatch(rank, route, scenario);
    }

    EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), rank.dispatch(route))),
              "");
  });
}

TEST_P(SplitContract, RefusesToFinishTwice) {
  const Scenario scenario = batch(Layout::kByRank, 6);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    auto pending = begin_dispatch(rank, route, scenario);
    (void)pending.finish();

    const auto outcome = support::attempt([&] { (void)pending.finish(); });

    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << outcome.message;
    EXPECT_EQ(support::attempt([] { (void)Pending<Delivery>().finish(); }).code,
              ErrorCode::kInvalidArgument);
  });
}

TEST_P(SplitContract, MixesSplitAndWholeOperationsAcrossRanks) {
  // Whether an operation is split is this rank's business; the sequence is the same.
  for (const Layout layout : kLayouts) {
    const Scenario scenario = batch(layout, 7);
    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Route route = rank.route();
      const Delivery delivery =
          rank.rank() == 1 ? begin_dispatch(rank, route, scenario).finish() : rank.dispatch(route);
      const auto call = rank.combine_call(delivery);
      if (rank.rank() == 2)
        rank.exchange().begin_combine(route, call.y, call.out, call.options).finish();
      else
        rank.exchange().combine(route, call.y, call.out, call.options);

      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
      EXPECT_EQ(combine_problem(scenario, rank.rank(), rank.fetch_combined(call)), "");
    });
  }
}

}  // namespace ferry::contract
