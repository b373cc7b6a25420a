#include "capi/config.hpp"

#include <numeric>

#include "unit/capi/expect_error.hpp"

namespace ferry::capi {
namespace {

using std::chrono::milliseconds;

TEST(ToGroupConfig, TakesZeroesForTheDefaults) {
  ferry_group_config given;
  ferry_group_config_init(&given);

  const GroupConfig got = to_config(&given);

  EXPECT_EQ(got.rank, 0);
  EXPECT_EQ(got.size, 1);
  EXPECT_EQ(got.address, "");
  EXPECT_EQ(got.secret, "");
  EXPECT_EQ(got.num_pretended_nodes, 0);
  EXPECT_EQ(got.meeting_timeout, milliseconds(0));
}

TEST(ToGroupConfig, KeepsEveryField) {
  ferry_group_config given;
  ferry_group_config_init(&given);
  given.rank = 1;
  given.size = 2;
  given.address = "unix:x";
  given.secret = "s";
  given.num_pretended_nodes = 3;
  given.meeting_timeout_ms = 4;
  given.arrival_timeout_ms = 5;
  given.progress_timeout_ms = 6;

  const GroupConfig got = to_config(&given);

  EXPECT_EQ(got.rank, 1);
  EXPECT_EQ(got.size, 2);
  EXPECT_EQ(got.address, "unix:x");
  EXPECT_EQ(got.secret, "s");
  EXPECT_EQ(got.num_pretended_nodes, 3);
  EXPECT_EQ(got.meeting_timeout, milliseconds(4));
  EXPECT_EQ(got.arrival_timeout, milliseconds(5));
  EXPECT_EQ(got.progress_timeout, milliseconds(6));
}

TEST(ToGroupConfig, RefusesReservedBitsAndNegativeTimes) {
  ferry_group_config given;
  ferry_group_config_init(&given);
  given.reserved = 1;
  expect_error(ErrorCode::kInvalidArgument, "ferry_group_config.reserved is 1, expected 0",
               [&] { static_cast<void>(to_config(&given)); });

  given.reserved = 0;
  given.arrival_timeout_ms = -1;
  expect_error(ErrorCode::kInvalidArgument,
               "ferry_group_config.arrival_timeout_ms is -1, expected 0 or more",
               [&] { static_cast<void>(to_config(&given)); });
}

// Every field of a known, distinct value.
ferry_exchange_config full_config(const std::int32_t (&owners)[4]) {
  ferry_exchange_config config;
  ferry_exchange_config_init(&config);
  config.num_experts = 4;
  config.top_k = 2;
  config.hidden = 64;
  config.max_tokens = 128;
  config.dtype = FERRY_DTYPE_FP32;
  config.device_kind = FERRY_DEVICE_KIND_CUDA;
  config.device_index = 7;
  config.mode = FERRY_MODE_LOW_LATENCY;
  config.layout = FERRY_LAYOUT_PADDED;
  config.duplicates = FERRY_DUPLICATES_ACCEPT;
  config.expert_alignment = 16;
  config.expert_owner = owners;
  config.num_expert_owners = 4;
  config.scale_bytes_per_row = 224;
  config.max_recv_rows = 1000;
  config.memory_limit = 2000;
  config.arena_bytes = 3000;
  config.overflow = FERRY_OVERFLOW_DROP;
  config.row_order = FERRY_ROW_ORDER_HIGHEST_K_ASCENDING;
  config.reduction = FERRY_REDUCTION_WIDE;
  config.low_latency_form = FERRY_LOW_LATENCY_FORM_EXPAND;
  config.num_threads = 5;
  config.num_sms = 12;
  config.arrival_timeout_ms = 6;
  config.progress_timeout_ms = 8;
  return config;
}

TEST(ToExchangeConfig, TakesZeroesForTheDefaults) {
  ferry_exchange_config given;
  ferry_exchange_config_init(&given);
  const ExchangeConfig expected;

  const ExchangeConfig got = to_config(&given);

  EXPECT_EQ(got.num_experts, expected.num_experts);
  EXPECT_EQ(got.top_k, expected.top_k);
  EXPECT_EQ(got.hidden, expected.hidden);
  EXPECT_EQ(got.max_tokens, expected.max_tokens);
  EXPECT_EQ(got.dtype, expected.dtype);
  EXPECT_EQ(got.device, expected.device);
  EXPECT_EQ(got.mode, expected.mode);
  EXPECT_EQ(got.layout, expected.layout);
  EXPECT_EQ(got.expert_alignment, expected.expert_alignment);
  EXPECT_EQ(got.duplicates, expected.duplicates);
  EXPECT_EQ(got.expert_owner, expected.expert_owner);
  EXPECT_EQ(got.scale_bytes_per_row, expected.scale_bytes_per_row);
  EXPECT_EQ(got.max_recv_rows, expected.max_recv_rows);
  EXPECT_EQ(got.overflow, expected.overflow);
  EXPECT_EQ(got.memory_limit, expected.memory_limit);
  EXPECT_EQ(got.arena_bytes, expected.arena_bytes);
  EXPECT_EQ(got.row_order, expected.row_order);
  EXPECT_EQ(got.reduction, expected.reduction);
  EXPECT_EQ(got.low_latency_form, expected.low_latency_form);
  EXPECT_EQ(got.num_threads, expected.num_threads);
  EXPECT_EQ(got.num_sms, expected.num_sms);
  EXPECT_EQ(got.arrival_timeout, expected.arrival_timeout);
  EXPECT_EQ(got.progress_timeout, expected.progress_timeout);
}

TEST(ToExchangeConfig, KeepsEveryFieldThereAndBack) {
  const std::int32_t owners[4] = {1, 0, 0, 1};
  const ferry_exchange_config given = full_config(owners);
  ferry_exchange_config got;
  ferry_exchange_config_init(&got);

  const ExchangeConfig config = to_config(&given);
  write_config(config, &got);

  EXPECT_EQ(config.num_experts, 4);
  EXPECT_EQ(config.device, Device::cuda(7));
  EXPECT_EQ(config.mode, Mode::kLowLatency);
  EXPECT_EQ(config.reduction, Reduction::kWide);
  EXPECT_EQ(config.low_latency_form, LowLatencyForm::kExpand);
  EXPECT_EQ(config.expert_owner, (std::vector<int>{1, 0, 0, 1}));
  EXPECT_EQ(config.arrival_timeout, milliseconds(6));
  // The array is the configuration's own copy; everything else returns as it came.
  EXPECT_EQ(got.expert_owner, config.expert_owner.data());
  got.expert_owner = owners;
  EXPECT_EQ(memcmp(&got, &given, sizeof got), 0);
}

TEST(ToExchangeConfig, RefusesEachEnumerationByName) {
  struct Case {
    const char* name;
    std::int32_t ferry_exchange_config::*field;
    int last;
  };
  for (const Case& c : {Case{"device_kind", &ferry_exchange_config::device_kind, 1},
                        Case{"mode", &ferry_exchange_config::mode, 1},
                        Case{"layout", &ferry_exchange_config::layout, 2},
                        Case{"duplicates", &ferry_exchange_config::duplicates, 1},
                        Case{"overflow", &ferry_exchange_config::overflow, 1},
                        Case{"row_order", &ferry_exchange_config::row_order, 1},
                        Case{"reduction", &ferry_exchange_config::reduction, 3},
                        Case{"low_latency_form", &ferry_exchange_config::low_latency_form, 2}}) {
    ferry_exchange_config given;
    ferry_exchange_config_init(&given);
    given.*c.field = 77;

    expect_error(ErrorCode::kInvalidArgument,
                 std::string("ferry_exchange_config.") + c.name + " is 77, expected 0.." +
                     std::to_string(c.last),
                 [&] { static_cast<void>(to_config(&given)); });
  }
}

TEST(ToExchangeConfig, RefusesOwnersThatAreCountedButNotGiven) {
  ferry_exchange_config given;
  ferry_exchange_config_init(&given);
  given.num_expert_owners = 4;

  expect_error(ErrorCode::kInvalidArgument,
               "ferry_exchange_config.expert_owner is NULL, expected 4 owners as "
               "num_expert_owners says",
               [&] { static_cast<void>(to_config(&given)); });
}

// Where the memory for a hostile count cannot even be asked for, the answer is an error too.
TEST(ToExchangeConfig, RefusesMoreOwnersThanExpertsCanBe) {
  const std::int32_t owners[1] = {0};
  ferry_exchange_config given;
  ferry_exchange_config_init(&given);
  given.expert_owner = owners;
  given.num_expert_owners = SIZE_MAX / 4;

  expect_error(ErrorCode::kInvalidArgument,
               "ferry_exchange_config.num_expert_owners is 4611686018427387903, expected at most "
               "4096",
               [&] { static_cast<void>(to_config(&given)); });
}

}  // namespace
}  // namespace ferry::capi
