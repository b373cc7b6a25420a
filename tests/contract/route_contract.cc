// Planning: ids are judged before anything moves, and every rank hears the same verdict.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

// Every rank throws the same text, and then the group still works.
void expect_refused_by_all(const EngineUnderTest& engine,
                           const Scenario& bad,
                           const std::string& text) {
  std::vector<support::Outcome> outcomes(static_cast<std::size_t>(bad.routing.num_ranks()));
  Scenario good = mixed_scenario(bad.layout);
  good.routing = support::random_routing(
      {.num_experts = bad.routing.num_experts,
       .top_k = bad.routing.top_k,
       .num_tokens = support::uneven_tokens(bad.routing.num_ranks(), bad.token_limit()),
       .pattern = support::Pattern::kSomeMasked,
       .expert_owner = {}},
      5);
  good.max_tokens = bad.token_limit();

  support::run_ranks(bad.routing.num_ranks(), [&](Group group) {
    RankUnderTest rank(group, engine, bad);
    // Worst-case sizing does not wait for the other ranks' counts, so it says so at the dispatch.
    outcomes[static_cast<std::size_t>(rank.rank())] =
        rank.attempt([&] { (void)rank.dispatch(rank.route()); });
    const Route route = rank.route(&good);
    const Delivery delivery = rank.dispatch(route, &good);
    EXPECT_EQ(delivery_problem(good, rank.rank(), fetch(rank.memory(), delivery)), "");
  });

  for (const support::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message, text);
  }
}

Scenario scenario_of(Routing routing) {
  Scenario scenario;
  scenario.routing = std::move(routing);
  return scenario;
}

}  // namespace

TEST_P(RouteContract, RefusesAnIdAboveTheLastExpertOnAllRanks) {
  expect_refused_by_all(
      engine(), scenario_of(support::make_routing(6, {{{0, 1}}, {{2, 3}, {4, 6}}, {{5, 0}}})),
      "rank 1 token 1: topk_idx[1, 1] is 6, expected -1 or 0..5");
}

TEST_P(RouteContract, RefusesAnIdBelowMinusOneOnAllRanks) {
  expect_refused_by_all(engine(), scenario_of(support::make_routing(4, {{{0, 1}}, {{-2, 3}}})),
                        "rank 1 token 0: topk_idx[0, 0] is -2, expected -1 or 0..3");
}

TEST_P(RouteContract, NamesTheLowestRankWhenSeveralHaveInvalidIds) {
  expect_refused_by_all(
      engine(), scenario_of(support::make_routing(4, {{{0, 1}}, {{9, 3}}, {{8, 0}}, {{7, 0}}})),
      "rank 1 token 0: topk_idx[0, 0] is 9, expected -1 or 0..3");
}

TEST_P(RouteContract, RefusesAnInt64IdWhoseLowHalfLooksLegal) {
  // 2^32 + 1 read as int32 is expert 1.
  Scenario scenario = scenario_of(support::make_routing(4, {{{0, 1}}, {{2, 3}}}));
  HostTensor ids(DType::kInt64, {1, 2});
  ids.set(0, 4294967297.0);

  const auto outcomes = attempt_on_all(engine(), scenario, [&](RankUnderTest& rank) {
    const HostTensor own = topk_of(scenario, rank.rank());
    (void)rank.dispatch(
        rank.exchange().route(rank.memory().place(rank.rank() == 0 ? ids : own),
                              {.layout = {}, .sizing = engine().sizing, .timeout = {}}));
  });

  for (const auto& outcome : outcomes)
    EXPECT_EQ(outcome.message, "rank 0 token 0: topk_idx[0, 0] is 4294967297, expected -1 or 0..3");
}

TEST_P(RouteContract, RefusesTwiceTheSameExpertInOneTokenOnAllRanks) {
  expect_refused_by_all(
      engine(), scenario_of(support::make_routing(4, {{{0, 1, 2}}, {{2, 3, 1}, {3, -1, 3}}})),
      "rank 1 token 1: topk_idx[1, 2] names expert 3 again, expected each expert once "
      "(duplicates = refuse)");
}

TEST_P(RouteContract, RefusesMoreTokensThanConfiguredOnAllRanks) {
  Scenario scenario = scenario_of(support::make_routing(4, {{{0, 1}}, {{2, 3}, {3, 1}, {0, 1}}}));
  scenario.max_tokens = 2;
  expect_refused_by_all(engine(), scenario, "rank 1: topk_idx has 3 tokens, max_tokens is 2");

  // Rank 0 meets its own follow-up errors first; the cause is what is told.
  std::swap(scenario.routing.topk[0], scenario.routing.topk[1]);
  std::swap(scenario.routing.weights[0], scenario.routing.weights[1]);
  expect_refused_by_all(engine(), scenario, "rank 0: topk_idx has 3 tokens, max_tokens is 2");
}

TEST_P(RouteContract, CopiesTheIds) {
  const Scenario scenario = mixed_scenario(Layout::kByRank);
  std::vector<Received> received(3);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const HostTensor ids = topk_of(scenario, rank.rank());
    const TensorView view = rank.memory().place(ids);
    const Route route = rank.exchange().route(view, {.layout = {}, .sizing = engine().sizing});
    HostTensor other = ids;
    other.fill(std::byte{0xFF});
    rank.memory().overwrite(view, other);
    received[static_cast<std::size_t>(rank.rank())] = fetch(rank.memory(), rank.dispatch(route));
  });

  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(delivery_problem(scenario, rank, received[static_cast<std::size_t>(rank)]), "");
}

TEST_P(RouteContract, BeginsAndFinishesLater) {
  const Scenario scenario = mixed_scenario(Layout::kByExpert);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    auto pending =
        rank.exchange().begin_route(rank.memory().place(topk_of(scenario, rank.rank())),
                                    {.layout = scenario.layout, .sizing = engine().sizing});
    const Route route = pending.finish();

    EXPECT_EQ(route.num_tokens(), scenario.routing.num_tokens(rank.rank()));
    EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), rank.dispatch(route))),
              "");
  });
}

}  // namespace ferry::contract
