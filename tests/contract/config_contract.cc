// Configurations that cannot work are refused at creation, naming the field.

#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

using Change = std::function<void(ExchangeConfig& config)>;

ExchangeConfig good_config(const EngineUnderTest& engine) {
  ExchangeConfig config = config_of(mixed_scenario(Layout::kByRank), engine, 0);
  config.expert_owner.clear();
  return config;
}

void expect_refused(const EngineUnderTest& engine,
                    const Change& change,
                    const std::vector<std::string>& parts) {
  ExchangeConfig config = good_config(engine);
  change(config);

  const auto by_constructor = support::attempt([&] { Exchange exchange(Group::self(), config); });
  const auto by_question = support::attempt([&] { (void)Exchange::bytes_needed(config, 1); });

  EXPECT_EQ(by_constructor.code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(by_constructor.failed);
  EXPECT_EQ(by_constructor.message, by_question.message);
  for (const std::string& part : parts)
    EXPECT_NE(by_constructor.message.find(part), std::string::npos)
        << part << ": " << by_constructor.message;
}

// Rank 2 of three differs; all refuse with one text.
void expect_difference_told(const EngineUnderTest& engine,
                            const Change& change,
                            const std::vector<std::string>& parts) {
  std::vector<support::Outcome> outcomes(3);
  support::run_ranks(3, [&](Group group) {
    ExchangeConfig config = good_config(engine);
    if (group.rank() == 2) change(config);
    outcomes[static_cast<std::size_t>(group.rank())] =
        support::attempt([&] { Exchange exchange(group, config); });
    // Agreeing at last works.
    Exchange exchange(group, good_config(engine));
    group.barrier();
  });

  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message, outcomes[0].message);
    EXPECT_NE(outcome.message.find("rank 2"), std::string::npos) << outcome.message;
    for (const std::string& part : parts)
      EXPECT_NE(outcome.message.find(part), std::string::npos) << part << ": " << outcome.message;
  }
}

}  // namespace

TEST_P(ConfigContract, RefusesMoreChoicesThanExperts) {
  expect_refused(engine(),
                 [](ExchangeConfig& config) {
                   config.num_experts = 4;
                   config.top_k = 5;
                 },
                 {"top_k", "5", "4"});
}

TEST_P(ConfigContract, RefusesSizesOutOfRange) {
  expect_refused(engine(), [](ExchangeConfig& c) { c.top_k = 0; }, {"top_k", "0"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.num_experts = 64, c.top_k = 33; },
                 {"top_k", "33", "32"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.num_experts = 0; }, {"num_experts", "0"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.num_experts = 4097; },
                 {"num_experts", "4097", "4096"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.hidden = 0; }, {"hidden", "0"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.hidden = -64; }, {"hidden", "-64"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.max_tokens = 0; }, {"max_tokens", "0"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.max_tokens = -1; }, {"max_tokens", "-1"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.expert_alignment = 0; },
                 {"expert_alignment", "0"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.memory_limit = -5; }, {"memory_limit", "-5"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.arena_bytes = -5; }, {"arena_bytes", "-5"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.num_threads = -2; }, {"num_threads", "-2"});
  expect_refused(engine(), [](ExchangeConfig& c) { c.max_recv_rows = -2; },
                 {"max_recv_rows", "-2"});
}

TEST_P(ConfigContract, RefusesRowsThatAreNoMultipleOf16Bytes) {
  expect_refused(engine(), [](ExchangeConfig& c) { c.hidden = 1001; }, {"hidden", "2002", "16"});
}

TEST_P(ConfigContract, RefusesSizesThatOverflow) {
  expect_refused(engine(), [](ExchangeConfig& c) { c.max_tokens = 1ll << 60; }, {"max_tokens"});
}

TEST_P(ConfigContract, RefusesOwnersThatDoNotExist) {
  expect_refused(engine(), [](ExchangeConfig& c) { c.expert_owner = std::vector<int>(12, 1); },
                 {"expert_owner[0] is 1, expected a rank in 0..0"});
  expect_refused(engine(),
                 [](ExchangeConfig& c) {
                   c.expert_owner = {0, 0, 0};
                 },
                 {"expert_owner", "3", "12"});
}

TEST_P(ConfigContract, NamesTheRemainderWhenExpertsDoNotDivide) {
  std::vector<support::Outcome> outcomes(5);
  support::run_ranks(5, [&](Group group) {
    outcomes[static_cast<std::size_t>(group.rank())] =
        support::attempt([&] { Exchange exchange(group, good_config(engine())); });
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.message,
              "num_experts 12 over 5 ranks leaves a remainder of 2, expected a multiple of the "
              "ranks or an expert_owner map");
  }
}

TEST_P(ConfigContract, NamesTheFieldTheRanksAndTheValuesThatDiffer) {
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.num_experts = 15; },
                         {"num_experts", "12", "15"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.top_k = 2; }, {"top_k", "3", "2"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.hidden = 128; },
                         {"hidden", "64", "128"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.max_tokens = 33; },
                         {"max_tokens", "33"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.layout = Layout::kPadded; },
                         {"layout", "by_rank", "padded"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.expert_alignment = 8; },
                         {"expert_alignment", "8"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.duplicates = Duplicates::kAccept; },
                         {"duplicates"});
  expect_difference_told(engine(), [](ExchangeConfig& c) { c.memory_limit = 1 << 20; },
                         {"memory_limit", "1048576"});
  expect_difference_told(engine(),
                         [](ExchangeConfig& c) { c.row_order = RowOrder::kHighestKAscending; },
                         {"row_order"});
  expect_difference_told(
      engine(), [](ExchangeConfig& c) { c.expert_owner = {2, 1, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2}; },
      {"expert_owner"});
}

TEST_P(ConfigContract, LetsThreadsDifferBetweenRanks) {
  support::run_ranks(3, [&](Group group) {
    ExchangeConfig config = good_config(engine());
    config.num_threads = 1 + group.rank();
    Exchange exchange(group, config);
    EXPECT_EQ(exchange.config().num_threads, 1 + group.rank());
    group.barrier();
  });
}

}  // namespace ferry::contract
