// Cases from the field that other libraries got wrong, by their number in our collection.

#include <cstring>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 20;
#else
constexpr int kRounds = 1000;
#endif

// Four ranks; rank 0 has no token, ranks 1 to 3 send four each, all to rank 0's six experts.
Scenario all_to_the_rank_without_tokens(Layout layout) {
  const std::vector<std::vector<int>> four(4, {0, 1, 2, 3, 4, 5});
  Scenario scenario;
  scenario.routing = support::make_routing(24, {{}, four, four, four});
  scenario.layout = layout;
  return scenario;
}

// FC18: rank 0's tokens choose experts 0 and 1 with weight 1, nobody else chooses anything, and
// experts return what they got. The sum is 2 * x, in every round.
void check_doubling(const EngineUnderTest& engine, std::int64_t num_tokens, int num_rounds) {
  Scenario scenario;
  scenario.routing =
      support::random_routing({.num_experts = 256,
                               .top_k = 2,
                               .num_tokens = std::vector<std::int64_t>(4, num_tokens),
                               .pattern = support::Pattern::kAllMasked,
                               .expert_owner = {}},
                              1);
  for (std::size_t t = 0; t < static_cast<std::size_t>(num_tokens); ++t) {
    scenario.routing.topk[0][2 * t] = static_cast<std::int32_t>(t % 2);
    scenario.routing.topk[0][2 * t + 1] = static_cast<std::int32_t>(1 - t % 2);
  }
  for (int rank = 0; rank < 4; ++rank)
    for (float& weight : scenario.routing.weights[static_cast<std::size_t>(rank)])
      weight = rank == 0 ? 1.0F : 0.0F;
  scenario.layout = Layout::kByExpert;
  scenario.hidden = 7168;
  scenario.is_weighted = true;
  scenario.edit_tokens = [](HostTensor& tokens, int) {  // 0 or 1
    for (std::int64_t i = 0; i < tokens.num_elements(); ++i)
      tokens.set_bits(i, (tokens.bits(i) & 0x40) != 0 ? 0x3F80 : 0);
  };

  support::run_ranks(4, [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    const HostTensor x = tokens_of(scenario, rank.rank());
    HostTensor expected(DType::kBf16, x.shape());
    if (rank.rank() == 0)
      for (std::int64_t i = 0; i < x.num_elements(); ++i)
        expected.set_bits(i, x.bits(i) != 0 ? 0x4000 : 0);
    HostTensor poison(DType::kBf16, x.shape());
    poison.fill(std::byte{0xEE});
    const TensorView placed_x = rank.memory().place(x);
    const TensorView out = rank.memory().place(poison);
    const TensorView topk = rank.memory().place(topk_of(scenario, rank.rank()));
    CombineOptions options;
    options.topk_weights = rank.memory().place(weights_of(scenario, rank.rank()));

    for (int round = 0; round < num_rounds; ++round) {
      const Route route = rank.exchange().route(topk, {.layout = {}, .sizing = engine.sizing});
      const Delivery delivery = rank.exchange().dispatch(route, placed_x);
      rank.exchange().combine(route, delivery.tokens(), out, options);
      const HostTensor got = rank.memory().fetch_dense(out);
      if (got.bytes() == expected.bytes()) continue;
      ADD_FAILURE() << "rank " << rank.rank() << " round " << round << ": "
                    << support::first_difference(got, expected);
      break;
    }
  });
}

}  // namespace

TEST_P(FieldCases, FC17ARankWithoutTokensServesAllOthers) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = all_to_the_rank_without_tokens(layout);
    scenario.is_weighted = layout != Layout::kByRank;

    const auto got = run(engine(), scenario);

    const std::int64_t real = layout == Layout::kByRank ? 12 : 72;
    EXPECT_EQ(static_cast<std::int64_t>(expected_rows(scenario, 0).rows.size()), real);
    EXPECT_EQ(got[0].combined.out.shape(), (std::vector<std::int64_t>{0, 64}));
    expect_right(scenario, got);
  }
}

TEST_P(FieldCases, FC17ARankWithoutTokensServesAllOthersInFp8) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = all_to_the_rank_without_tokens(layout);
    scenario.quantize = Quantize::kFp8;
    scenario.hidden = 512;
    check(scenario);
    // The caller's own fp8 and scales.
    scenario.quantize = Quantize::kNone;
    scenario.dtype = DType::kFp8E4m3;
    scenario.num_scales = 4;
    check(scenario);
  }
}

TEST_P(FieldCases, FC18DoublesEveryTokenOfOneRankInEveryRound) {
  check_doubling(engine(), 32, is_low_latency() ? kRounds : kRounds / 10);
  check_doubling(engine(), 256, kRounds / 20);
  check_doubling(engine(), 1024, kRounds / 100 + 1);
}

TEST_P(FieldCases, FC22AnExpertTwiceInOneToken) {
  for (const Layout layout : kLayouts) {
    Scenario scenario;
    scenario.routing = support::make_routing(12, {{{0, 1, 2, 3}}, {{4, 5, 6, 7}, {3, 3, 7, 9}}});
    scenario.layout = layout;
    const auto outcomes = attempt_on_all(
        engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });
    for (const auto& outcome : outcomes)
      EXPECT_EQ(outcome.message,
                "rank 1 token 1: topk_idx[1, 1] names expert 3 again, expected each expert once "
                "(duplicates = refuse)");

    scenario.duplicates = Duplicates::kAccept;
    scenario.is_weighted = layout != Layout::kByRank;
    check(scenario);
  }
}

TEST_P(FieldCases, FC24Hidden2880) {
  for (const Layout layout : kLayouts) {
    Scenario scenario;
    scenario.routing = support::random_routing({.num_experts = 32,
                                                .top_k = 4,
                                                .num_tokens = {8, 7, 0, 8},
                                                .pattern = support::Pattern::kUniform,
                                                .expert_owner = {}},
                                               24);
    scenario.layout = layout;
    scenario.hidden = 2880;
    scenario.is_weighted = layout != Layout::kByRank;

    const auto got = run(engine(), scenario);

    EXPECT_EQ(got[0].received.tokens.row_elements(), 2880);
    expect_right(scenario, got);
  }
}

}  // namespace ferry::contract
