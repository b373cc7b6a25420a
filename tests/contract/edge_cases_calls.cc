// The edge cases of edge_cases_batches.cc, continued: how calls follow each other, sizes of groups
// and buffers, values that fp8 cannot hold, ends.

#include <cmath>
#include <cstring>
#include <thread>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

using support::Pattern;

}  // namespace

TEST_P(EdgeCases, Case13CapsThatDifferBetweenRanks) {
  std::vector<support::Outcome> outcomes(3);
  support::run_ranks(3, [&](Group group) {
    Scenario scenario = random_scenario(Layout::kByRank, {4, 4, 4}, Pattern::kUniform);
    scenario.max_tokens = group.rank() == 1 ? 8 : 16;
    outcomes[static_cast<std::size_t>(group.rank())] =
        support::attempt([&] { const RankUnderTest rank(group, engine(), scenario); });
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.message, outcomes[0].message);
    EXPECT_NE(outcome.message.find("max_tokens"), std::string::npos) << outcome.message;
  }
}

TEST_P(EdgeCases, Case14ShapesThatChangeBetweenCalls) {
  Scenario widest = random_scenario(Layout::kPadded, {6, 5, 6}, Pattern::kSomeMasked);
  widest.hidden = 512;
  widest.dtype = DType::kFp32;
  widest.sum_dtype = DType::kFp32;
  std::vector<Scenario> calls;
  for (const Layout layout : kLayouts) {
    for (const std::int64_t hidden : {512, 64, 256}) {
      for (const DType dtype : {DType::kFp32, DType::kBf16, DType::kUint8}) {
        Scenario call = random_scenario(layout, {6, 5, 6}, Pattern::kSomeMasked);
        call.hidden = hidden;
        call.dtype = dtype;
        call.seed = static_cast<std::uint64_t>(calls.size()) + 1;
        calls.push_back(call);
      }
    }
  }

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), widest);
    for (const Scenario& call : calls) {
      const Route route = rank.route(&call);
      const Delivery delivery = rank.dispatch(route, &call);
      EXPECT_EQ(delivery_problem(call, rank.rank(), fetch(rank.memory(), delivery)), "")
          << describe(call);
      EXPECT_EQ(combine_problem(call, rank.rank(), rank.combine(route, delivery, &call)), "")
          << describe(call);
    }
  });
}

TEST_P(EdgeCases, Case15UnequalTokenCounts) {
  for (const Layout layout : kLayouts)
    check(random_scenario(layout, {1, 60, 0, 7}, Pattern::kUniform, 8, 2));
}

TEST_P(EdgeCases, Case16BuffersBeyondTwoGibibytes) {
  if (is_low_latency()) GTEST_SKIP() << "LL regions are for a few hundred tokens";
  // Padded, 2 experts a rank, 2 * 131072 places each: the second expert starts at 3.75 GB, the
  // delivery spans 7.5 GB of address space and holds 8 rows.
  Scenario scenario;
  scenario.routing = support::make_routing(4, {{{1, 3}, {0, 3}}, {{3, 1}, {2, 0}}});
  scenario.layout = Layout::kPadded;
  scenario.hidden = 7168;
  scenario.max_tokens = 131072;

  support::run_ranks(2, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    const Delivery delivery = rank.dispatch(route);
    const TensorView tokens = delivery.tokens();
    ASSERT_EQ(tokens.shape[1], 262144);
    ASSERT_EQ(tokens.strides[0], 262144ll * 7168);

    const oracle::Received expected = expected_rows(scenario, rank.rank());
    for (const oracle::Row& row : expected.rows) {
      TensorView one = tokens;
      one.num_dims = 1;
      one.shape[0] = 7168;
      one.strides[0] = 1;
      one.data = static_cast<std::byte*>(tokens.data) + row.index * 7168 * 2;
      const HostTensor sent = tokens_of(scenario, row.source);
      EXPECT_EQ(std::memcmp(rank.memory().fetch(one).bytes().data(), sent.row(row.token),
                            sent.row_bytes()),
                0)
          << "row " << row.index;
    }

    // Experts that return what they got: every token comes back doubled.
    HostTensor doubled = tokens_of(scenario, rank.rank());
    for (std::int64_t i = 0; i < doubled.num_elements(); ++i) doubled.set(i, 2 * doubled.at(i));
    const TensorView out = rank.memory().place(HostTensor(DType::kBf16, {2, 7168}));
    rank.exchange().combine(route, tokens, out);
    EXPECT_EQ(support::first_difference(rank.memory().fetch(out), doubled), "");
  });
}

TEST_P(EdgeCases, Case17GroupSizesThatAreNoPowersOfTwo) {
  for (const int num_ranks : {1, 3, 6, 24}) {
    for (const Layout layout : kLayouts)
      check(
          random_scenario(layout, support::uneven_tokens(num_ranks, 4), Pattern::kUniform, 48, 4));
  }
}

TEST_P(EdgeCases, Case18TokensWithThreeDimensions) {
  const auto outcomes =
      attempt_on_all(engine(), random_scenario(Layout::kByRank, {4, 4, 4}, Pattern::kUniform),
                     [](RankUnderTest& rank) {
                       (void)rank.exchange().dispatch(
                           rank.route(), rank.memory().place(HostTensor(DType::kBf16, {2, 2, 64})));
                     });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("[2, 2, 64]"), std::string::npos) << outcome.message;
  }
}

TEST_P(EdgeCases, Case19NaNInfinityAndZeroRowsInFp8) {
  for (const Quantize quantize : {Quantize::kFp8, Quantize::kFp8Ue8m0}) {
    Scenario scenario = random_scenario(Layout::kByExpert, {4, 4, 4}, Pattern::kUniform);
    scenario.quantize = quantize;
    scenario.hidden = 320;  // two groups and a half
    scenario.edit_tokens = [](HostTensor& tokens, int) {
      const std::int64_t hidden = tokens.row_elements();
      tokens.set_bits(3, 0x7FC0);    // row 0: a NaN among numbers
      tokens.set_bits(200, 0x7F80);  // and infinities in another group
      tokens.set_bits(201, 0xFF80);
      for (std::int64_t i = 0; i < hidden; ++i) {
        tokens.set_bits(hidden + i, 0);           // row 1: zero
        tokens.set_bits(2 * hidden + i, 0xFFFF);  // row 2: nothing but NaN
      }
      tokens.set_bits(3 * hidden, 0x7F7F);      // row 3: the largest bf16
      tokens.set_bits(3 * hidden + 1, 0x0001);  // and the smallest
    };

    const auto got = run(engine(), scenario, {.combines = false});

    expect_right(scenario, got, {.combines = false});
    if (quantize == Quantize::kFp8Ue8m0) continue;
    for (const auto& result : got)
      for (std::int64_t row = 0; row < result.received.num_rows.int_at(0); ++row)
        for (std::int64_t s = 0; s < 3; ++s) {
          const double scale = result.received.scales.at(row * 3 + s);
          EXPECT_TRUE(std::isfinite(scale) && scale > 0) << scale;
        }
  }
}

TEST_P(EdgeCases, Case20UnusedTail) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = random_scenario(layout, {4, 0, 2}, Pattern::kSomeMasked);
    scenario.max_tokens = 16;
    scenario.gaps = Gaps::kZeroed;
    check(scenario);
    // A second, smaller batch in the same memory: ids of the first must not show.
    Scenario smaller = random_scenario(layout, {1, 0, 0}, Pattern::kUniform);
    smaller.max_tokens = 16;
    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Route large = rank.route();
      for (int i = 0; i < 4; ++i) (void)rank.dispatch(large);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(
            delivery_problem(smaller, rank.rank(),
                             fetch(rank.memory(), rank.dispatch(rank.route(&smaller), &smaller))),
            "");
    });
  }
}

TEST_P(EdgeCases, Case21RoutesThatAreNeverReleased) {
  const Scenario scenario = random_scenario(Layout::kByExpert, {2, 3, 4}, Pattern::kUniform);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    std::vector<Route> kept;
    for (int i = 0; i < 300; ++i) kept.push_back(rank.route());
    for (const std::size_t i : {0, 150, 299}) {
      const Delivery delivery = rank.dispatch(kept[i]);
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
    }
    // With another T than the route's: refused.
    const auto outcome = rank.attempt([&] {
      (void)rank.exchange().dispatch(kept[1],
                                     rank.memory().place(HostTensor(DType::kBf16, {1, 64})));
    });
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << outcome.message;
  });
}

TEST_P(EdgeCases, Case22DispatchDispatchCombineCombine) {
  for (const Layout layout : kLayouts) {
    const Scenario first = random_scenario(layout, {4, 5, 6}, Pattern::kUniform);
    Scenario second = random_scenario(layout, {6, 1, 3}, Pattern::kSomeMasked);
    second.seed = 2;
    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), first);
      for (int round = 0; round < 10; ++round) {
        const Route routes[] = {rank.route(&first), rank.route(&second)};
        const Delivery one = rank.dispatch(routes[0], &first);
        const Delivery two = rank.dispatch(routes[1], &second);
        EXPECT_EQ(combine_problem(first, rank.rank(), rank.combine(routes[0], one, &first)), "");
        EXPECT_EQ(combine_problem(second, rank.rank(), rank.combine(routes[1], two, &second)), "");
        EXPECT_EQ(delivery_problem(first, rank.rank(), fetch(rank.memory(), one)), "");
      }
    });
  }
}

TEST_P(EdgeCases, Case26ALateRankIsNamedWhenTheDeadlinePasses) {
  const Scenario scenario = random_scenario(Layout::kByRank, {2, 2, 2}, Pattern::kUniform);
  GroupConfig config = support::patient_config();
  config.arrival_timeout = std::chrono::milliseconds(300);
  std::vector<support::Outcome> outcomes(3);

  support::run_ranks(
      3,
      [&](Group group) {
        RankUnderTest rank(group, engine(), scenario);
        const Route route = rank.route();
        // Rank 1 waits until the fault has reached it, without calling anything.
        const auto deadline = support::Clock::now() + std::chrono::seconds(20);
        outcomes[static_cast<std::size_t>(rank.rank())] = rank.attempt([&] {
          if (rank.rank() != 1) return (void)rank.dispatch(route);
          while (support::Clock::now() < deadline) {
            group.check();
            std::this_thread::yield();
          }
        });
      },
      config);

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 1"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("dispatch"), std::string::npos) << outcome.message;
  }
}

TEST_P(EdgeCases, Case28DestroyInEveryState) {
  const Scenario scenario = random_scenario(Layout::kByRank, {2, 2, 2}, Pattern::kUniform);
  support::run_ranks(3, [&](Group group) {
    {
      RankUnderTest unused(group, engine(), scenario);
      unused.exchange().destroy();
    }
    group.barrier();
    {
      RankUnderTest rank(group, engine(), scenario);
      const Route route = rank.route();
      auto pending = rank.exchange().begin_dispatch(
          route, rank.memory().place(tokens_of(scenario, rank.rank())));
      group.barrier();
      rank.exchange().destroy();  // with an operation in flight
      rank.exchange().destroy();
      EXPECT_TRUE(support::attempt([&] { (void)pending.finish(); }).failed);
    }
    group.barrier();
    RankUnderTest again(group, engine(), scenario);
    const Delivery delivery = again.dispatch(again.route());
    EXPECT_EQ(delivery_problem(scenario, again.rank(), fetch(again.memory(), delivery)), "");
  });
}

TEST_P(EdgeCases, Case29TwoExchangesOfDifferentShapesInOneProcess) {
  const Scenario one = random_scenario(Layout::kByRank, {4, 5, 6}, Pattern::kUniform);
  Scenario other = random_scenario(Layout::kPadded, {2, 0, 3}, Pattern::kSomeMasked, 6, 2);
  other.hidden = 1536;
  support::run_ranks(3, [&](Group group) {
    RankUnderTest first(group, engine(), one);
    RankUnderTest second(group, engine(), other);
    for (int round = 0; round < 5; ++round) {
      const Route route_one = first.route();
      const Route route_other = second.route();
      const Delivery delivery_other = second.dispatch(route_other);
      const Delivery delivery_one = first.dispatch(route_one);
      EXPECT_EQ(combine_problem(one, first.rank(), first.combine(route_one, delivery_one)), "");
      EXPECT_EQ(combine_problem(other, first.rank(), second.combine(route_other, delivery_other)),
                "");
    }
  });
}

TEST_P(EdgeCases, Case31RealAndAlignedCounts) {
  if (!is_exact()) GTEST_SKIP() << "worst-case sizing has no host counts";
  Scenario scenario = random_scenario(Layout::kByExpert, {4, 5, 6}, Pattern::kUniform);
  scenario.alignment = 128;
  const auto got = run(engine(), scenario);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult& result = got[static_cast<std::size_t>(rank)];
    const oracle::Received expected = expected_rows(scenario, rank);
    EXPECT_EQ(result.route_expert_counts, expected.counts);
    for (std::size_t e = 0; e < expected.counts.size(); ++e)
      EXPECT_EQ(result.route_aligned_counts[e], (expected.counts[e] + 127) / 128 * 128);
  }
  expect_right(scenario, got);
}

}  // namespace ferry::contract
