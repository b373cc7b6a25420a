#include "exchange/exchange_plan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace ferry::detail {
namespace {

ExchangeConfig standard_config() {
  return {.num_experts = 256, .top_k = 8, .hidden = 7168, .max_tokens = 4096};
}

std::string refusal(const ExchangeConfig& config, int num_ranks = 8) {
  try {
    (void)plan_exchange(config, num_ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

template <typename Change>
std::string refusal_of(const Change& change) {
  ExchangeConfig config = standard_config();
  change(config);
  return refusal(config);
}

TEST(ExchangePlan, AcceptsTheStandardShape) {
  const ExchangePlan plan = plan_exchange(standard_config(), 8);

  EXPECT_EQ(plan.max_row_bytes, 14336);
  EXPECT_EQ(plan.max_scale_bytes, 56 * 4);
  // by_expert's worst case: 8 ranks, 4096 tokens, 8 rows each.
  EXPECT_EQ(plan.delivery_rows, 8 * 4096 * 8);
  EXPECT_FALSE(plan.is_low_latency_expand);
}

TEST(ExchangePlan, RefusesIllegalFieldsByName) {
  EXPECT_EQ(refusal_of([](auto& c) { c.num_experts = 0; }),
            "exchange config: num_experts is 0, expected 1..4096");
  EXPECT_EQ(refusal_of([](auto& c) { c.top_k = 33; }),
            "exchange config: top_k is 33, expected 1..32");
  EXPECT_EQ(refusal_of([](auto& c) {
              c.num_experts = 4;
              c.top_k = 5;
            }),
            "exchange config: top_k 5 is larger than num_experts 4");
  EXPECT_EQ(refusal_of([](auto& c) { c.hidden = 7167; }),
            "exchange config: hidden 7167 x bf16 makes rows of 14334 bytes, expected a multiple of "
            "16");
  EXPECT_EQ(refusal_of([](auto& c) { c.max_tokens = 0; }),
            "exchange config: max_tokens is 0, expected 1..67108864");
  EXPECT_EQ(refusal_of([](auto& c) { c.memory_limit = 1000; }),
            "exchange config: memory_limit is 1000 bytes, staging of one token needs 229888");
  EXPECT_EQ(refusal_of([](auto& c) {
              c.expert_owner = {0, 1, 2};
            }),
            "exchange config: expert_owner names 3 experts, num_experts is 256");
}

TEST(ExchangePlan, MakesRoomOnAGpuForTheConfiguredLayoutOnly) {
  ExchangeConfig config = standard_config();
  config.device = Device::cuda(1);

  const ExchangePlan by_rank = plan_exchange(config, 8);
  config.layout = Layout::kByExpert;
  const ExchangePlan by_expert = plan_exchange(config, 8);

  EXPECT_EQ(by_rank.delivery_rows, 8 * config.max_tokens);
  EXPECT_GT(by_expert.delivery_rows, by_rank.delivery_rows);
  EXPECT_GT(by_rank.arena.gpu_gate.slots, 0);
  EXPECT_EQ(by_rank.arena.staging[0], by_rank.arena.staging[2]);
}

TEST(ExchangePlan, RefusesExpertsThatTheRanksDoNotDivide) {
  EXPECT_NE(refusal(standard_config(), 7), "accepted");
}

TEST(ExchangePlan, SizesForAnyExpertsPerRank) {
  ExchangeConfig config{.num_experts = 5, .top_k = 2, .hidden = 64, .max_tokens = 10};
  config.expert_owner = {0, 0, 0, 0, 2};

  const ExchangePlan plan = plan_exchange(config, 3);

  EXPECT_EQ(plan.owners->num_local(1), 0);
  EXPECT_EQ(plan.delivery_rows, 3 * 10 * 2);
}

TEST(ExchangePlan, CapsDeliveriesAtMaxRecvRows) {
  ExchangeConfig config = standard_config();
  config.max_recv_rows = 1000;

  EXPECT_EQ(plan_exchange(config, 8).delivery_rows, 1000);
}

TEST(ExchangePlan, SizesPaddedSlotsOnlyWhenAsked) {
  ExchangeConfig config = standard_config();
  config.max_tokens = 128;
  EXPECT_EQ(plan_exchange(config, 8).delivery_rows, 8 * 128 * 8);

  config.layout = Layout::kPadded;
  EXPECT_EQ(plan_exchange(config, 8).delivery_rows, 32 * 8 * 128);
}

TEST(ExchangePlan, ExpandsSmallLowLatencyBatchesAndPacksLargeOnes) {
  ExchangeConfig config = standard_config();
  config.mode = Mode::kLowLatency;
  config.max_tokens = 128;
  EXPECT_TRUE(plan_exchange(config, 8).is_low_latency_expand);

  config.low_latency_form = LowLatencyForm::kPacked;
  EXPECT_FALSE(plan_exchange(config, 8).is_low_latency_expand);

  config.low_latency_form = LowLatencyForm::kAuto;
  config.max_tokens = 4096;
  EXPECT_FALSE(plan_exchange(config, 8).is_low_latency_expand);
}

TEST(ExchangePlan, PacksWhereTheFixedRegionsExceedTheMemoryLimit) {
  ExchangeConfig config = standard_config();
  config.mode = Mode::kLowLatency;
  config.max_tokens = 128;
  config.memory_limit = 1 << 20;
  EXPECT_FALSE(plan_exchange(config, 8).is_low_latency_expand);

  config.low_latency_form = LowLatencyForm::kExpand;
  EXPECT_NE(refusal(config), "accepted");
}

TEST(ExchangePlan, AnswersNeedsWithoutAllocating) {
  const MemoryNeed need = Exchange::bytes_needed(standard_config(), 8);

  EXPECT_GE(need.delivery_bytes, std::int64_t{8} * 4096 * 8 * 14336);
  EXPECT_GE(need.arena_virtual_bytes, 3 * need.delivery_bytes + need.staging_bytes);
  EXPECT_GT(need.control_bytes, 0);
}

}  // namespace
}  // namespace ferry::detail
