// Experts need not lie in equal blocks, and may move between batches.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

Scenario with_owners(Layout layout, std::vector<int> owners, int num_ranks, std::uint64_t seed) {
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = static_cast<int>(owners.size()),
                                              .top_k = 3,
                                              .num_tokens = support::uneven_tokens(num_ranks, 8),
                                              .pattern = support::Pattern::kSomeMasked,
                                              .expert_owner = std::move(owners)},
                                             seed);
  scenario.layout = layout;
  scenario.max_tokens = 8;
  return scenario;
}

}  // namespace

TEST_P(OwnerMapContract, ServesUnevenMaps) {
  for (const Layout layout : kLayouts) check(with_owners(layout, {0, 0, 0, 0, 1, 2, 2}, 3, 1));
}

TEST_P(OwnerMapContract, ServesInterleavedMaps) {
  for (const Layout layout : kLayouts) check(with_owners(layout, {2, 0, 1, 0, 2, 1, 1, 0}, 3, 2));
}

TEST_P(OwnerMapContract, ServesRanksWithoutExperts) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = with_owners(layout, {2, 2, 0, 0}, 3, 3);
    scenario.gaps = Gaps::kZeroed;
    check(scenario);
  }
}

TEST_P(OwnerMapContract, ServesRedundantSlots) {
  // Logical experts 0..5 with a second slot each for 0 and 1, on another rank.
  for (const Layout layout : kLayouts) check(with_owners(layout, {0, 0, 1, 1, 2, 2, 1, 2}, 3, 4));
}

TEST_P(OwnerMapContract, ChoosesReplicasTheSameWayEveryTime) {
  // Two slots for logical expert 0, three for 1: token t, column k takes (t * 31 + k) % count.
  const std::vector<std::vector<int>> replicas = {{0, 4}, {1, 5, 2}};
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    HostTensor logical(dtype, {3, 2});
    for (const std::int64_t i : {0, 2, 4}) logical.set(i, 0);
    for (const std::int64_t i : {1, 3}) logical.set(i, 1);
    logical.set(5, -1);
    HostTensor physical(dtype, {3, 2});

    map_replicas(logical.view(), replicas, physical.view());

    constexpr std::int64_t kExpected[] = {0, 5, 4, 2, 0, -1};
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(physical.int_at(i), kExpected[i]) << i;
  }
}

TEST_P(OwnerMapContract, TellsHowManyExpertsARankOwns) {
  const Scenario scenario = with_owners(Layout::kByRank, {0, 0, 0, 0, 1, 2, 2}, 3, 5);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    constexpr int kExpected[] = {4, 1, 2};
    EXPECT_EQ(rank.exchange().num_local_experts(), kExpected[rank.rank()]);
  });
}

TEST_P(OwnerMapContract, MovesExpertsForLaterRoutesOnly) {
  for (const Layout layout : kLayouts) {
    const Scenario before = with_owners(layout, {0, 0, 1, 1, 2, 2}, 3, 6);
    const Scenario after = with_owners(layout, {2, 1, 1, 0, 0, 2}, 3, 7);

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), before);
      const Route old_route = rank.route();
      rank.exchange().set_owner_map(after.routing.expert_owner);
      const Route new_route = rank.route(&after);
      for (int round = 0; round < 2; ++round) {
        const Delivery first = rank.dispatch(old_route);
        EXPECT_EQ(delivery_problem(before, rank.rank(), fetch(rank.memory(), first)), "");
        EXPECT_EQ(combine_problem(before, rank.rank(), rank.combine(old_route, first)), "");
        const Delivery second = rank.dispatch(new_route, &after);
        EXPECT_EQ(delivery_problem(after, rank.rank(), fetch(rank.memory(), second)), "");
        EXPECT_EQ(combine_problem(after, rank.rank(), rank.combine(new_route, second, &after)), "");
      }
    });
  }
}

TEST_P(OwnerMapContract, RefusesAMapThatDiffersBetweenRanks) {
  const Scenario scenario = with_owners(Layout::kByRank, {0, 0, 1, 1, 2, 2}, 3, 8);
  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    std::vector<int> owners = {2, 2, 1, 1, 0, 0};
    if (rank.rank() == 2) owners = {2, 2, 1, 0, 1, 0};
    rank.exchange().set_owner_map(owners);
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message, outcomes[0].message);
    EXPECT_NE(outcome.message.find("owner map"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 2"), std::string::npos) << outcome.message;
  }
}

TEST_P(OwnerMapContract, RefusesAnOwnerThatDoesNotExistOnAllRanks) {
  const Scenario scenario = with_owners(Layout::kByRank, {0, 0, 1, 1, 2, 2}, 3, 9);
  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    std::vector<int> owners = {0, 0, 1, 1, 2, rank.rank() == 1 ? 3 : 2};
    rank.exchange().set_owner_map(owners);
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message, "expert_owner[5] is 3, expected a rank in 0..2");
  }
}

TEST_P(OwnerMapContract, RefusesAMapOfAnotherLength) {
  const Scenario scenario = with_owners(Layout::kByRank, {0, 0, 1, 1, 2, 2}, 3, 10);
  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    const std::vector<int> owners = {0, 1, 2};
    rank.exchange().set_owner_map(owners);
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("3"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("6"), std::string::npos) << outcome.message;
  }
}

}  // namespace ferry::contract
