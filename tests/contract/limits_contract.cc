// memory_limit cuts batches into chunks without changing a bit; max_recv_rows refuses or drops.

#include <cstring>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

// 64 bf16: 128 bytes a row.
constexpr std::int64_t kRowBytes = 128;

// Everybody sends everything to rank 0: it receives 6 rows in kByRank, 12 in kByExpert.
Scenario crowded(Layout layout, Overflow overflow, std::int64_t max_recv_rows) {
  Scenario scenario;
  scenario.routing = support::make_routing(4, {{{0, 1}, {1, 0}, {0, 1}}, {{0, 1}, {1, 0}, {0, 1}}});
  scenario.layout = layout;
  scenario.overflow = overflow;
  scenario.max_recv_rows = max_recv_rows;
  return scenario;
}

}  // namespace

TEST_P(LimitsContract, GivesTheSameBitsUnderAMemoryLimit) {
  if (!engine().has_chunks) GTEST_SKIP() << "this engine stages whole batches";
  for (const Layout layout : kLayouts) {
    for (const std::int64_t tokens : {1, 2, 1000}) {
      Scenario scenario = mixed_scenario(layout);
      scenario.has_rough_values = true;
      scenario.is_weighted = layout != Layout::kByRank;
      scenario.form = CombineForm::kPush;
      scenario.returns_weights = true;
      // Staging is made for fp32 rows with their weights: 320 bytes a row, three rows a token.
      scenario.memory_limit = tokens * 3 * 320;

      check(scenario);
    }
  }
}

TEST_P(LimitsContract, StagesOutputsOutsideTheArenaInChunks) {
  if (!is_exact() || is_low_latency()) GTEST_SKIP() << "only HT stages outputs in windows";
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert}) {
    Scenario scenario = mixed_scenario(layout);
    scenario.memory_limit = 3 * kRowBytes * scenario.routing.top_k;

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Route route = rank.route();
      DispatchOptions options = rank.dispatch_options();
      HostTensor tokens(DType::kBf16, {route.num_recv_rows() + 1, scenario.hidden});
      tokens.fill(std::byte{0xEE});
      // Rank 1 receives into the arena: the ranks have different numbers of windows.
      if (rank.rank() != 1) options.outputs.tokens = rank.memory().place(tokens);

      const Delivery delivery = rank.exchange().dispatch(
          route, rank.memory().place(tokens_of(scenario, rank.rank())), options);

      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "")
          << describe(scenario);
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), rank.dispatch(route))),
                "");
    });
  }
}

TEST_P(LimitsContract, StagesOutputsLargerThanTheLimitInEveryMode) {
  if (!is_exact()) GTEST_SKIP() << "the outputs here have the size of one batch";
  // 1024 rows of 2 KiB arrive at rank 0, whose outputs lie outside the arena; low-latency regions
  // need about 1.1 MB and fit the limit.
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = 64,
                                              .top_k = 8,
                                              .num_tokens = std::vector<std::int64_t>(8, 16),
                                              .pattern = support::Pattern::kSameExperts,
                                              .expert_owner = {}},
                                             8);
  scenario.layout = Layout::kByExpert;
  scenario.hidden = 1024;
  scenario.memory_limit = 1'500'000;

  support::run_ranks(8, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    HostTensor tokens(DType::kBf16, {route.num_recv_rows() + 1, scenario.hidden});
    tokens.fill(std::byte{0xEE});
    DispatchOptions options = rank.dispatch_options();
    options.outputs.tokens = rank.memory().place(tokens);

    const Delivery delivery = rank.exchange().dispatch(
        route, rank.memory().place(tokens_of(scenario, rank.rank())), options);

    EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
  });
}

TEST_P(LimitsContract, RefusesALimitBelowOneRow) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  scenario.memory_limit = 16;

  support::run_ranks(3, [&](Group group) {
    const auto outcome =
        support::attempt([&] { const RankUnderTest rank(group, engine(), scenario); });

    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message,
              "exchange config: memory_limit is 16 bytes, staging of one token needs 960");
  });
}

TEST_P(LimitsContract, RefusesOverflowOnAllRanksAndMovesNothing) {
  for (const Layout layout : {Layout::kByRank, Layout::kByExpert}) {
    const Scenario scenario = crowded(layout, Overflow::kError, 5);
    Scenario fits = scenario;
    fits.routing = support::make_routing(4, {{{0, 2}, {3, 2}}, {{0, -1}}});
    fits.max_tokens = 3;

    support::run_ranks(2, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      // Worst-case sizing may say so as late as the dispatch.
      const auto outcome =
          rank.attempt([&] { (void)rank.dispatch(rank.route(&scenario), &scenario); });

      EXPECT_EQ(outcome.code, ErrorCode::kNoResource) << outcome.message;
      EXPECT_EQ(outcome.message,
                layout == Layout::kByRank
                    ? "rank 0 would receive 6 rows, max_recv_rows is 5; try: a larger "
                      "max_recv_rows, or overflow = drop"
                    : "rank 0 would receive 12 rows, max_recv_rows is 5; try: a larger "
                      "max_recv_rows, or overflow = drop");
      // The group lives.
      const Delivery delivery = rank.dispatch(rank.route(&fits), &fits);
      EXPECT_EQ(delivery_problem(fits, rank.rank(), fetch(rank.memory(), delivery)), "");
    });
  }
}

TEST_P(LimitsContract, DropsRowsBeyondTheLimitAndCountsThem) {
  const Scenario scenario = crowded(Layout::kByRank, Overflow::kDrop, 5);
  std::int64_t dropped[2] = {};
  HostTensor out[2];

  support::run_ranks(2, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    const Delivery delivery = rank.dispatch(route);
    EXPECT_EQ(rank.memory().fetch(delivery.num_rows()).int_at(0), rank.rank() == 0 ? 5 : 0);
    if (rank.rank() == 0) {
      // The first five of six: three of rank 0, two of rank 1.
      const HostTensor got = rank.memory().fetch(delivery.tokens());
      for (std::int64_t row = 0; row < 5; ++row) {
        const HostTensor sent = tokens_of(scenario, row < 3 ? 0 : 1);
        EXPECT_EQ(std::memcmp(got.row(row), sent.row(row % 3), sent.row_bytes()), 0) << row;
      }
    }
    const auto call = rank.combine_call(delivery);
    rank.exchange().combine(route, call.y, call.out, call.options);
    out[rank.rank()] = rank.memory().fetch(call.out);
    dropped[rank.rank()] = rank.exchange().counters().dropped_rows;
  });

  EXPECT_EQ(dropped[0] + dropped[1], 1);
  EXPECT_EQ(support::first_difference(out[0], expected_sum(scenario, 0)), "");
  // The last token of rank 1 has lost its only row.
  HostTensor expected = expected_sum(scenario, 1);
  std::fill_n(expected.row(2), expected.row_bytes(), std::byte{0});
  EXPECT_EQ(support::first_difference(out[1], expected), "");
}

TEST_P(LimitsContract, TellsMemoryNeedsWithoutAllocating) {
  const Scenario small = mixed_scenario(Layout::kByRank);
  ExchangeConfig config = config_of(small, engine(), 0);
  config.expert_owner.clear();
  config.hidden = 7168;
  config.max_tokens = 65536;

  // 64 ranks of 65536 tokens: a delivery of 56 GiB, an answer in no time.
  config.num_experts = 256;
  const MemoryNeed need = Exchange::bytes_needed(config, 64);

  EXPECT_GE(need.delivery_bytes, 64ll * 65536 * 7168 * 2);
  EXPECT_GE(need.arena_virtual_bytes, need.delivery_bytes);
  EXPECT_GT(need.control_bytes, 0);
}

}  // namespace ferry::contract
