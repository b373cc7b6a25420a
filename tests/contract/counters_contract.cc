// Bytes by hand. Rank 0 owns experts 0 and 1, rank 1 owns 2 and 3; a row is 64 bf16, 128 bytes.

#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

// Rank 0: token 0 stays, token 1 goes to both ranks, token 2 to rank 1. Rank 1: token 0 to both.
Scenario counted(Layout layout) {
  Scenario scenario;
  scenario.routing = support::make_routing(4, {{{0, 1}, {2, 0}, {3, -1}}, {{1, 3}}});
  scenario.layout = layout;
  return scenario;
}

}  // namespace

TEST_P(CountersContract, CountsLogicalAndWireBytesByRank) {
  const auto got = run(engine(), counted(Layout::kByRank));

  for (const auto& result : got) {
    EXPECT_EQ(result.counters.dispatches, 1);
    EXPECT_EQ(result.counters.combines, 1);
    EXPECT_EQ(result.counters.dispatch_logical_bytes, 3 * 128);  // both receive three rows
    EXPECT_EQ(result.counters.combine_logical_bytes, 3 * 128);   // and contribute them
  }
  EXPECT_EQ(got[0].counters.dispatch_wire_bytes, 2 * 128);  // tokens 1 and 2
  EXPECT_EQ(got[1].counters.dispatch_wire_bytes, 1 * 128);
  EXPECT_EQ(got[0].counters.combine_wire_bytes, 1 * 128);  // back the other way
  EXPECT_EQ(got[1].counters.combine_wire_bytes, 2 * 128);
}

TEST_P(CountersContract, CountsALinkOnceForATokenWithTwoExpertsOnIt) {
  for (const Layout layout : {Layout::kByExpert, Layout::kPadded}) {
    Scenario scenario = counted(layout);
    // Rank 1's token now has both experts on rank 0.
    scenario.routing = support::make_routing(4, {{{0, 1}}, {{1, 0}}});

    const auto got = run(engine(), scenario);

    EXPECT_EQ(got[0].counters.dispatch_logical_bytes, 4 * 128);
    EXPECT_EQ(got[1].counters.dispatch_logical_bytes, 0);
    EXPECT_EQ(got[0].counters.combine_logical_bytes, 4 * 128);
    EXPECT_EQ(got[0].counters.combine_wire_bytes, 2 * 128);  // one row per expert comes back
    EXPECT_EQ(got[0].counters.dispatch_wire_bytes, 0);
    // Within one node memory is the link: the plan may write each copy directly.
    EXPECT_GE(got[1].counters.dispatch_wire_bytes, 1 * 128);
    EXPECT_LE(got[1].counters.dispatch_wire_bytes, 2 * 128);
  }
}

TEST_P(CountersContract, CountsScalesWithTheirRows) {
  Scenario scenario = counted(Layout::kByRank);
  scenario.dtype = DType::kFp8E4m3;  // 64 bytes a row
  scenario.num_scales = 3;           // and 12 of scales

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_EQ(got[0].counters.dispatch_logical_bytes, 3 * 76);
  EXPECT_EQ(got[0].counters.dispatch_wire_bytes, 2 * 76);
}

TEST_P(CountersContract, CountsQuantizedRowsAsTheyTravel) {
  Scenario scenario = counted(Layout::kByRank);
  scenario.hidden = 256;
  scenario.quantize = Quantize::kFp8;  // 256 bytes and two float scales

  const auto got = run(engine(), scenario, {.combines = false});

  EXPECT_EQ(got[0].counters.dispatch_logical_bytes, 3 * 264);
  EXPECT_EQ(got[1].counters.dispatch_wire_bytes, 1 * 264);
}

TEST_P(CountersContract, CountsCopiesOfStagedRows) {
  if (is_low_latency()) GTEST_SKIP() << "LL copies rows out of its regions";
  Scenario scenario = counted(Layout::kByRank);
  scenario.y_in_arena = true;
  scenario.form = CombineForm::kPull;

  const auto direct = run(engine(), scenario);
  for (const auto& result : direct) EXPECT_EQ(result.counters.staged_bytes, 0);

  scenario.form = CombineForm::kPush;
  const auto staged = run(engine(), scenario);
  EXPECT_GT(staged[0].counters.staged_bytes + staged[1].counters.staged_bytes, 0);
}

TEST_P(CountersContract, KeepsRoutesApartAndSumsThem) {
  const Scenario scenario = counted(Layout::kByRank);
  support::run_ranks(2, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route used_twice = rank.route();
    const Route used_once = rank.route();
    (void)rank.dispatch(used_twice);
    (void)rank.dispatch(used_once);
    (void)rank.dispatch(used_twice);

    EXPECT_EQ(used_twice.counters().dispatches, 2);
    EXPECT_EQ(used_twice.counters().dispatch_logical_bytes, 2 * 3 * 128);
    EXPECT_EQ(used_once.counters().dispatches, 1);
    EXPECT_EQ(rank.exchange().counters().dispatches, 3);
    EXPECT_EQ(rank.exchange().counters().dispatch_logical_bytes, 3 * 3 * 128);
  });
}

TEST_P(CountersContract, ChargesWaitsToPeersOnly) {
  const Scenario scenario = counted(Layout::kByRank);
  support::run_ranks(2, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    for (int i = 0; i < 10; ++i) (void)rank.dispatch(rank.route());

    const Counters counters = rank.exchange().counters();
    ASSERT_EQ(counters.wait_ns_by_peer.size(), 2u);
    EXPECT_EQ(counters.wait_ns_by_peer[static_cast<std::size_t>(rank.rank())], 0);
    EXPECT_EQ(counters.wait_ns, counters.wait_ns_by_peer[0] + counters.wait_ns_by_peer[1]);
  });
}

}  // namespace ferry::contract
