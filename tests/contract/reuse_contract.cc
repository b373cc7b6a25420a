// One route serves any number of operations; a handle that has lost its exchange says so.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

// The same routing with other values.
Scenario with_seed(Scenario scenario, std::uint64_t seed) {
  scenario.seed = seed;
  return scenario;
}

}  // namespace

TEST_P(ReuseContract, ServesSeveralDispatchesAndCombinesWithOneRoute) {
  for (const Layout layout : kLayouts) {
    const Scenario first = mixed_scenario(layout);
    const Scenario second = with_seed(first, 99);

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), first);
      const Route route = rank.route();
      for (const Scenario* scenario : {&first, &second, &first}) {
        const Delivery delivery = rank.dispatch(route, scenario);
        EXPECT_EQ(delivery_problem(*scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
        EXPECT_EQ(combine_problem(*scenario, rank.rank(), rank.combine(route, delivery, scenario)),
                  "");
      }
    });
  }
}

TEST_P(ReuseContract, ServesAnOldRouteAfterLaterOnes) {
  for (const Layout layout : kLayouts) {
    const Scenario old_batch = mixed_scenario(layout);
    Scenario new_batch = mixed_scenario(layout);
    new_batch.routing = support::random_routing({.num_experts = 12,
                                                 .top_k = 3,
                                                 .num_tokens = support::uneven_tokens(3, 9, 1),
                                                 .pattern = support::Pattern::kUniform,
                                                 .expert_owner = {}},
                                                43);
    new_batch.max_tokens = old_batch.token_limit();

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), old_batch);
      const Route old_route = rank.route();
      std::vector<Route> later;
      for (int i = 0; i < 10; ++i) {
        later.push_back(rank.route(&new_batch));
        (void)rank.dispatch(later.back(), &new_batch);
      }

      const Delivery delivery = rank.dispatch(old_route);
      EXPECT_EQ(delivery_problem(old_batch, rank.rank(), fetch(rank.memory(), delivery)), "");
      EXPECT_EQ(combine_problem(old_batch, rank.rank(), rank.combine(old_route, delivery)), "");
      const Delivery newer = rank.dispatch(later[0], &new_batch);
      EXPECT_EQ(delivery_problem(new_batch, rank.rank(), fetch(rank.memory(), newer)), "");
    });
  }
}

TEST_P(ReuseContract, SendsGradientsBackAlongTheRouteOfTheForward) {
  // The backward of a combine is a dispatch on the same route, and the other way round.
  const Scenario forward = mixed_scenario(Layout::kByRank);
  const Scenario backward = with_seed(forward, 1234);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), forward);
    const Route route = rank.route();
    const Delivery tokens = rank.dispatch(route);
    EXPECT_EQ(combine_problem(forward, rank.rank(), rank.combine(route, tokens)), "");
    const Delivery gradients = rank.dispatch(route, &backward);
    EXPECT_EQ(delivery_problem(backward, rank.rank(), fetch(rank.memory(), gradients)), "");
    EXPECT_EQ(combine_problem(backward, rank.rank(), rank.combine(route, gradients, &backward)),
              "");
  });
}

TEST_P(ReuseContract, RefusesARouteOfAnotherExchange) {
  const Scenario scenario = mixed_scenario(Layout::kByRank);

  const auto outcomes =
      attempt_on_all(engine(), scenario, [&](RankUnderTest& rank) { (void)rank.route(); });
  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;

  support::run_ranks(3, [&](Group group) {
    RankUnderTest one(group, engine(), scenario);
    RankUnderTest other(group, engine(), scenario);
    const Route route = one.route();

    const auto outcome = support::attempt([&] { (void)other.dispatch(route); });

    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("route"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("another exchange"), std::string::npos) << outcome.message;
    // Both exchanges still work.
    EXPECT_EQ(delivery_problem(scenario, one.rank(), fetch(one.memory(), one.dispatch(route))), "");
    const Route second = other.route();
    EXPECT_EQ(delivery_problem(scenario, one.rank(), fetch(other.memory(), other.dispatch(second))),
              "");
  });
}

TEST_P(ReuseContract, RefusesARouteThatWasNeverMade) {
  const auto outcomes = attempt_on_all(engine(), mixed_scenario(Layout::kByRank),
                                       [&](RankUnderTest& rank) { (void)rank.dispatch(Route()); });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("route"), std::string::npos) << outcome.message;
  }
}

TEST_P(ReuseContract, RefusesEverythingAfterDestroy) {
  const Scenario scenario = mixed_scenario(Layout::kByRank);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    const Delivery delivery = rank.dispatch(route);
    const auto call = rank.combine_call(delivery);
    const TensorView x = rank.memory().place(tokens_of(scenario, rank.rank()));
    const TensorView ids = rank.memory().place(topk_of(scenario, rank.rank()));
    group.barrier();

    rank.exchange().destroy();
    rank.exchange().destroy();

    const std::vector<std::function<void()>> uses = {
        [&] { (void)rank.exchange().route(ids); },
        [&] { (void)rank.exchange().dispatch(route, x); },
        [&] { rank.exchange().combine(route, call.y, call.out); },
        [&] { (void)route.num_tokens(); },
        [&] { (void)route.counters(); },
        [&] { (void)delivery.tokens(); },
        [&] { (void)rank.exchange().allocate(256); },
        [&] { rank.exchange().check(); },
    };
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const auto outcome = support::attempt(uses[i]);
      EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << i << " " << outcome.message;
      EXPECT_NE(outcome.message.find("destroy"), std::string::npos) << i << " " << outcome.message;
    }
  });
}

TEST_P(ReuseContract, MakesAndDestroysManyExchangesOnOneGroup) {
  const Scenario scenario = mixed_scenario(Layout::kByRank);
  support::run_ranks(3, [&](Group group) {
    for (int round = 0; round < 20; ++round) {
      RankUnderTest rank(group, engine(), scenario);
      const Delivery delivery = rank.dispatch(rank.route());
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
    }
  });
}

}  // namespace ferry::contract
