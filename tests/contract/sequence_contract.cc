// All ranks issue the same operations in the same order; one that differs is told at once.

#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

// Rank 1 makes one call, the others another; what everybody heard.
std::vector<support::Outcome> diverge(
    const EngineUnderTest& engine,
    const std::function<void(RankUnderTest&, const Route&)>& usual,
    const std::function<void(RankUnderTest&, const Route&)>& odd) {
  const Scenario scenario = mixed_scenario(Layout::kByExpert);
  std::vector<support::Outcome> outcomes(3);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    const Route route = rank.route();
    (void)rank.dispatch(route);
    outcomes[static_cast<std::size_t>(rank.rank())] =
        rank.attempt([&] { (rank.rank() == 1 ? odd : usual)(rank, route); });
  });
  return outcomes;
}

// Both operations are named, with their ranks, long before any deadline.
void expect_told_at_once(const std::vector<support::Outcome>& outcomes,
                         const std::string& one,
                         const std::string& other) {
  for (const support::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << outcome.message;
    EXPECT_LT(outcome.took, std::chrono::seconds(5));
    EXPECT_NE(outcome.message.find(one), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find(other), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 1"), std::string::npos) << outcome.message;
  }
}

void dispatch(RankUnderTest& rank, const Route& route) { (void)rank.dispatch(route); }
// Worst-case sizing does not wait in route(): the next call tells.
void plan(RankUnderTest& rank, const Route& route) {
  (void)rank.route();
  (void)rank.dispatch(route);
}
void combine(RankUnderTest& rank, const Route& route) {
  const Delivery delivery = rank.dispatch(route);
  (void)rank.combine(route, delivery);
}

}  // namespace

TEST_P(SequenceContract, NamesADispatchThatMeetsARoute) {
  expect_told_at_once(diverge(engine(), dispatch, plan), "dispatch", "route");
}

TEST_P(SequenceContract, NamesACombineThatMeetsADispatch) {
  // Rank 1 skips the combine and goes on with the next dispatch.
  expect_told_at_once(diverge(engine(), combine,
                              [](RankUnderTest& rank, const Route& route) {
                                dispatch(rank, route);
                                dispatch(rank, route);
                              }),
                      "combine", "dispatch");
}

TEST_P(SequenceContract, NamesASetOwnerMapThatMeetsADispatch) {
  expect_told_at_once(diverge(engine(), dispatch,
                              [](RankUnderTest& rank, const Route&) {
                                rank.exchange().set_owner_map(support::block_owners(12, 3));
                              }),
                      "dispatch", "set_owner_map");
}

TEST_P(SequenceContract, TellsADispatchOnAnotherRoute) {
  const Scenario scenario = mixed_scenario(Layout::kByExpert);
  std::vector<support::Outcome> outcomes(3);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route routes[] = {rank.route(), rank.route()};
    outcomes[static_cast<std::size_t>(rank.rank())] =
        rank.attempt([&] { (void)rank.dispatch(routes[rank.rank() == 1 ? 0 : 1]); });
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("route"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 1"), std::string::npos) << outcome.message;
  }
}

TEST_P(SequenceContract, TellsATypeThatDiffersBetweenRanks) {
  const auto outcomes = diverge(engine(), dispatch, [](RankUnderTest& rank, const Route& route) {
    Scenario other = mixed_scenario(Layout::kByExpert);
    other.dtype = DType::kFp16;
    (void)rank.dispatch(route, &other);
  });

  expect_told_at_once(outcomes, "bf16", "fp16");
}

TEST_P(SequenceContract, TellsAWidthThatDiffersBetweenRanks) {
  const auto outcomes = diverge(engine(), dispatch, [](RankUnderTest& rank, const Route& route) {
    Scenario other = mixed_scenario(Layout::kByExpert);
    other.hidden = 32;
    (void)rank.dispatch(route, &other);
  });

  expect_told_at_once(outcomes, "128", "64");
}

TEST_P(SequenceContract, TellsARankThatLeavesInsteadOfCalling) {
  const Scenario scenario = mixed_scenario(Layout::kByExpert);
  std::vector<support::Outcome> outcomes(3);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    group.barrier();
    if (rank.rank() == 1) return group.leave();
    outcomes[static_cast<std::size_t>(rank.rank())] =
        rank.attempt([&] { (void)rank.dispatch(route); });
    const auto again = rank.attempt([&] { (void)rank.dispatch(route); });
    // The first message goes on with what this rank was doing.
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank.rank())].message.starts_with(again.message))
        << again.message;
    EXPECT_LT(again.took, std::chrono::milliseconds(500));
  });

  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].code, ErrorCode::kPeerLost) << outcomes[rank].message;
    EXPECT_NE(outcomes[rank].message.find("rank 1"), std::string::npos) << outcomes[rank].message;
    EXPECT_LT(outcomes[rank].took, std::chrono::seconds(2));
  }
}

TEST_P(SequenceContract, FailsLaterCallsWithTheSameCause) {
  const Scenario scenario = mixed_scenario(Layout::kByExpert);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    const auto first = rank.attempt([&] {
      if (rank.rank() == 1)
        plan(rank, route);
      else
        dispatch(rank, route);
    });

    for (int i = 0; i < 3; ++i) {
      const auto later = support::attempt([&] { (void)rank.route(); });
      EXPECT_EQ(later.message, first.message);
      EXPECT_LT(later.took, std::chrono::milliseconds(500));
    }
    EXPECT_EQ(support::attempt([&] { rank.exchange().check(); }).message, first.message);
    rank.exchange().destroy();
    rank.exchange().destroy();
  });
}

}  // namespace ferry::contract
