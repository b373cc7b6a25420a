#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ferry/ferry.h"

// Whole exchanges through the C ABI alone, over four thread ranks. All values are integers or
// dyadic fractions that fp32 holds exactly, so results are compared for equality.

#define FERRY_TRY(call)                                             \
  do {                                                              \
    if (const ferry_status status_ = (call); status_ != FERRY_OK) { \
      ADD_FAILURE() << #call << ": " << ferry_last_error();         \
      return status_;                                               \
    }                                                               \
  } while (false)

namespace ferry::capi {
namespace {

constexpr int32_t kRanks = 4;
constexpr int32_t kExperts = 8;
constexpr int32_t kLocalExperts = kExperts / kRanks;
constexpr int64_t kHidden = 16;
constexpr int64_t kTopK = 2;
constexpr int64_t kMaxTokens = 6;

int64_t num_tokens(int32_t rank) { return 3 + rank; }

int32_t expert_of(int32_t rank, int64_t token, int64_t k) {
  return static_cast<int32_t>((rank + token + 3 * k) % kExperts);
}

float weight_of(int64_t k) { return k == 0 ? 0.5f : 0.25f; }

float value_of(int32_t rank, int64_t token, int64_t channel) {
  return static_cast<float>(16 * rank + token + channel % 4);
}

// Expert e multiplies its rows by this.
float factor_of(int32_t expert) { return static_cast<float>(expert + 1); }

ferry_exchange_config small_config(ferry_layout layout) {
  ferry_exchange_config config;
  ferry_exchange_config_init(&config);
  config.num_experts = kExperts;
  config.top_k = kTopK;
  config.hidden = kHidden;
  config.max_tokens = kMaxTokens;
  config.dtype = FERRY_DTYPE_FP32;
  config.layout = layout;
  config.num_threads = 1;
  return config;
}

ferry_tensor matrix(const void* data, ferry_dtype dtype, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  return ferry_tensor_dense(data, dtype, 2, shape);
}

// One rank's inputs.
struct Batch {
  explicit Batch(int32_t rank)
      : tokens(num_tokens(rank)),
        topk_idx(static_cast<std::size_t>(tokens * kTopK)),
        weights(topk_idx.size()),
        x(static_cast<std::size_t>(tokens * kHidden)),
        out(x.size(), -1.0f) {
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t k = 0; k < kTopK; ++k) {
        topk_idx[static_cast<std::size_t>(token * kTopK + k)] = expert_of(rank, token, k);
        weights[static_cast<std::size_t>(token * kTopK + k)] = weight_of(k);
      }
      for (int64_t channel = 0; channel < kHidden; ++channel)
        x[static_cast<std::size_t>(token * kHidden + channel)] = value_of(rank, token, channel);
    }
  }

  ferry_tensor topk_idx_view() const {
    return matrix(topk_idx.data(), FERRY_DTYPE_INT64, tokens, kTopK);
  }
  ferry_tensor weights_view() const {
    return matrix(weights.data(), FERRY_DTYPE_FP32, tokens, kTopK);
  }
  ferry_tensor x_view() const { return matrix(x.data(), FERRY_DTYPE_FP32, tokens, kHidden); }
  ferry_tensor out_view() const { return matrix(out.data(), FERRY_DTYPE_FP32, tokens, kHidden); }

  int64_t tokens;
  std::vector<int64_t> topk_idx;
  std::vector<float> weights;
  std::vector<float> x;
  std::vector<float> out;
};

// What combine gives for x when each expert multiplies by its factor.
void expect_combined(int32_t rank, const Batch& batch, bool is_weighted) {
  for (int64_t token = 0; token < batch.tokens; ++token) {
    float factor = 0;
    for (int64_t k = 0; k < kTopK; ++k)
      factor += (is_weighted ? weight_of(k) : 1.0f) * factor_of(expert_of(rank, token, k));
    for (int64_t channel = 0; channel < kHidden; ++channel)
      ASSERT_EQ(batch.out[static_cast<std::size_t>(token * kHidden + channel)],
                factor * value_of(rank, token, channel))
          << "rank " << rank << " token " << token << " channel " << channel;
  }
}

void expect_ok_on_all_ranks(ferry_rank_body body, void* user = nullptr) {
  EXPECT_EQ(ferry_group_run_threads(kRanks, nullptr, body, user), FERRY_OK) << ferry_last_error();
}

// Multiplies the rows of by_expert by their expert's factor, in place.
ferry_status apply_experts_by_expert(int32_t rank,
                                     const ferry_delivery* delivery,
                                     ferry_tensor* tokens) {
  ferry_tensor offsets;
  ferry_tensor counts;
  ferry_tensor_init(&offsets);
  ferry_tensor_init(&counts);
  FERRY_TRY(ferry_delivery_tokens(delivery, tokens));
  FERRY_TRY(ferry_delivery_expert_offsets(delivery, &offsets));
  FERRY_TRY(ferry_delivery_expert_counts(delivery, &counts));
  const auto* first = static_cast<const int64_t*>(offsets.data);
  const auto* count = static_cast<const int64_t*>(counts.data);
  for (int32_t local = 0; local < kLocalExperts; ++local) {
    auto* row = static_cast<float*>(tokens->data) + first[local] * kHidden;
    std::for_each(row, row + count[local] * kHidden,
                  [&](float& value) { value *= factor_of(rank * kLocalExperts + local); });
  }
  return FERRY_OK;
}

ferry_status exchange_by_expert(ferry_group* group, void*) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  const Batch batch(rank);
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_EXPERT);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));

  const ferry_tensor topk_idx = batch.topk_idx_view();
  const ferry_tensor weights = batch.weights_view();
  const ferry_tensor x = batch.x_view();
  const ferry_tensor out = batch.out_view();
  ferry_route* route = nullptr;
  FERRY_TRY(ferry_exchange_route(exchange, &topk_idx, nullptr, nullptr, &route));
  ferry_dispatch_options dispatch_options;
  ferry_dispatch_options_init(&dispatch_options);
  dispatch_options.topk_weights = &weights;
  ferry_delivery* delivery = nullptr;
  FERRY_TRY(ferry_exchange_dispatch(exchange, route, &x, &dispatch_options, nullptr, &delivery));
  ferry_tensor y;
  ferry_tensor_init(&y);
  FERRY_TRY(apply_experts_by_expert(rank, delivery, &y));
  ferry_combine_options combine_options;
  ferry_combine_options_init(&combine_options);
  combine_options.topk_weights = &weights;
  FERRY_TRY(ferry_exchange_combine(exchange, route, &y, &out, &combine_options, nullptr));

  expect_combined(rank, batch, true);
  const int64_t* counts = nullptr;
  size_t num_counts = 0;
  FERRY_TRY(ferry_route_expert_counts(route, &counts, &num_counts));
  EXPECT_EQ(num_counts, static_cast<size_t>(kLocalExperts));
  for (int32_t local = 0; local < kLocalExperts; ++local) {
    int64_t expected = 0;
    for (int32_t from = 0; from < kRanks; ++from)
      for (int64_t token = 0; token < num_tokens(from); ++token)
        for (int64_t k = 0; k < kTopK; ++k)
          expected += expert_of(from, token, k) == rank * kLocalExperts + local;
    EXPECT_EQ(counts[local], expected);
  }
  int64_t route_tokens = 0;
  FERRY_TRY(ferry_route_num_tokens(route, &route_tokens));
  EXPECT_EQ(route_tokens, num_tokens(rank));
  ferry_counters counters;
  ferry_counters_init(&counters);
  int64_t waits[kRanks] = {};
  FERRY_TRY(ferry_exchange_counters(exchange, &counters, waits, kRanks));
  EXPECT_EQ(counters.dispatches, 1);
  EXPECT_EQ(counters.combines, 1);

  ferry_delivery_free(delivery);
  ferry_route_free(route);
  ferry_exchange_free(exchange);
  return FERRY_OK;
}

TEST(CExchange, WeighsTheRowsOfEachExpert) { expect_ok_on_all_ranks(exchange_by_expert); }

// Multiplies each row of by_rank by the factors of all experts that it serves here, in place.
ferry_status apply_experts_by_rank(int32_t rank,
                                   const ferry_delivery* delivery,
                                   ferry_tensor* tokens) {
  ferry_tensor ids;
  ferry_tensor_init(&ids);
  FERRY_TRY(ferry_delivery_tokens(delivery, tokens));
  FERRY_TRY(ferry_delivery_topk_idx(delivery, &ids));
  for (int64_t row = 0; row < tokens->shape[0]; ++row) {
    float factor = 0;
    for (int64_t k = 0; k < kTopK; ++k) {
      const int64_t id = static_cast<const int64_t*>(ids.data)[row * kTopK + k];
      if (id >= 0) factor += factor_of(rank * kLocalExperts + static_cast<int32_t>(id));
    }
    auto* values = static_cast<float*>(tokens->data) + row * kHidden;
    std::for_each(values, values + kHidden, [&](float& value) { value *= factor; });
  }
  return FERRY_OK;
}

ferry_status exchange_in_halves(ferry_group* group, void*) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  const Batch batch(rank);
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));

  const ferry_tensor topk_idx = batch.topk_idx_view();
  const ferry_tensor x = batch.x_view();
  const ferry_tensor out = batch.out_view();
  ferry_pending_route* pending_route = nullptr;
  FERRY_TRY(ferry_exchange_begin_route(exchange, &topk_idx, nullptr, nullptr, &pending_route));
  ferry_route* route = nullptr;
  FERRY_TRY(ferry_pending_route_finish(pending_route, &route));
  ferry_pending_delivery* pending_delivery = nullptr;
  FERRY_TRY(
      ferry_exchange_begin_dispatch(exchange, route, &x, nullptr, nullptr, &pending_delivery));
  ferry_delivery* delivery = nullptr;
  FERRY_TRY(ferry_pending_delivery_finish(pending_delivery, &delivery));
  ferry_tensor y;
  ferry_tensor_init(&y);
  FERRY_TRY(apply_experts_by_rank(rank, delivery, &y));
  ferry_pending_combine* pending_combine = nullptr;
  FERRY_TRY(
      ferry_exchange_begin_combine(exchange, route, &y, &out, nullptr, nullptr, &pending_combine));
  FERRY_TRY(ferry_pending_combine_finish(pending_combine));

  expect_combined(rank, batch, false);
  ferry_pending_combine_free(pending_combine);
  ferry_pending_delivery_free(pending_delivery);
  ferry_pending_route_free(pending_route);
  ferry_delivery_free(delivery);
  ferry_route_free(route);
  ferry_exchange_free(exchange);
  return FERRY_OK;
}

TEST(CExchange, GivesTheSameInHalves) { expect_ok_on_all_ranks(exchange_in_halves); }

// Outputs and y in memory from allocate, granted early by post; the scalars come back alone.
ferry_status exchange_in_the_arena(ferry_group* group, void*) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  const Batch batch(rank);
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));

  const ferry_tensor topk_idx = batch.topk_idx_view();
  const ferry_tensor weights = batch.weights_view();
  const ferry_tensor x = batch.x_view();
  const ferry_tensor out = batch.out_view();
  ferry_route* route = nullptr;
  FERRY_TRY(ferry_exchange_route(exchange, &topk_idx, nullptr, nullptr, &route));
  ferry_tensor rows;
  ferry_tensor_init(&rows);
  const int64_t shape[2] = {kRanks * kMaxTokens, kHidden};
  FERRY_TRY(ferry_exchange_allocate_tensor(exchange, FERRY_DTYPE_FP32, 2, shape, nullptr, &rows));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(rows.data) % 256, 0u);
  ferry_delivery_outputs outputs;
  ferry_delivery_outputs_init(&outputs);
  outputs.tokens = &rows;
  FERRY_TRY(ferry_exchange_post(exchange, route, &outputs, nullptr));
  ferry_dispatch_options options;
  ferry_dispatch_options_init(&options);
  options.topk_weights = &weights;
  options.outputs = &outputs;
  ferry_delivery* delivery = nullptr;
  FERRY_TRY(ferry_exchange_dispatch(exchange, route, &x, &options, nullptr, &delivery));
  ferry_tensor y;
  ferry_tensor row_weights;
  ferry_tensor_init(&y);
  ferry_tensor_init(&row_weights);
  FERRY_TRY(apply_experts_by_rank(rank, delivery, &y));
  EXPECT_EQ(y.data, rows.data);
  FERRY_TRY(ferry_delivery_topk_weights(delivery, &row_weights));
  FERRY_TRY(ferry_exchange_combine(exchange, route, &y, &out, nullptr, nullptr));
  std::vector<float> returned(batch.weights.size(), -1.0f);
  const ferry_tensor combined_weights =
      matrix(returned.data(), FERRY_DTYPE_FP32, batch.tokens, kTopK);
  FERRY_TRY(
      ferry_exchange_combine_weights(exchange, route, &row_weights, &combined_weights, nullptr));

  expect_combined(rank, batch, false);
  EXPECT_EQ(returned, batch.weights);
  FERRY_TRY(ferry_exchange_deallocate(exchange, rows.data, nullptr));
  FERRY_TRY(ferry_exchange_deallocate(exchange, nullptr, nullptr));
  ferry_delivery_free(delivery);
  ferry_route_free(route);
  ferry_exchange_free(exchange);
  return FERRY_OK;
}

TEST(CExchange, WritesIntoMemoryOfTheCaller) { expect_ok_on_all_ranks(exchange_in_the_arena); }

ferry_status exchange_with_new_owners(ferry_group* group, void*) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  const Batch batch(rank);
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));

  const int32_t everything_on_rank_three[kExperts] = {3, 3, 3, 3, 3, 3, 3, 3};
  FERRY_TRY(ferry_exchange_set_owner_map(exchange, everything_on_rank_three, kExperts, nullptr));
  const ferry_tensor topk_idx = batch.topk_idx_view();
  ferry_route* route = nullptr;
  FERRY_TRY(ferry_exchange_route(exchange, &topk_idx, nullptr, nullptr, &route));

  int32_t num_local_experts = -1;
  int64_t num_rows = -1;
  FERRY_TRY(ferry_exchange_num_local_experts(exchange, &num_local_experts));
  FERRY_TRY(ferry_route_num_recv_rows(route, &num_rows));
  EXPECT_EQ(num_local_experts, rank == 3 ? kExperts : 0);
  EXPECT_EQ(num_rows, rank == 3 ? 3 + 4 + 5 + 6 : 0);
  ferry_route_free(route);
  ferry_exchange_free(exchange);
  return FERRY_OK;
}

TEST(CExchange, MovesExpertsToNewOwners) { expect_ok_on_all_ranks(exchange_with_new_owners); }

struct Messages {
  std::mutex mutex;
  std::multiset<std::string> seen;
};

ferry_status name_an_expert_that_is_not(ferry_group* group, void* user) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  Batch batch(rank);
  if (rank == 2) batch.topk_idx[3] = kExperts;
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));
  const ferry_tensor topk_idx = batch.topk_idx_view();
  int stale = 0;
  auto* route = reinterpret_cast<ferry_route*>(&stale);

  EXPECT_EQ(ferry_exchange_route(exchange, &topk_idx, nullptr, nullptr, &route),
            FERRY_INVALID_ARGUMENT);

  EXPECT_EQ(route, nullptr);
  {
    auto& messages = *static_cast<Messages*>(user);
    const std::lock_guard lock(messages.mutex);
    messages.seen.insert(ferry_last_error());
  }
  // The group lives.
  EXPECT_EQ(ferry_exchange_check(exchange), FERRY_OK) << ferry_last_error();
  FERRY_TRY(ferry_group_barrier(group));
  ferry_exchange_free(exchange);
  return FERRY_OK;
}

TEST(CExchange, RefusesABadIdWithTheSameWordsOnAllRanks) {
  Messages messages;

  expect_ok_on_all_ranks(name_an_expert_that_is_not, &messages);

  const std::string expected = "rank 2 token 1: topk_idx[1, 1] is 8, expected -1 or 0..7";
  EXPECT_EQ(messages.seen.size(), 4u);
  EXPECT_EQ(messages.seen.count(expected), 4u) << *messages.seen.begin();
}

ferry_status use_after_destroy(ferry_group* group, void*) {
  int32_t rank = 0;
  FERRY_TRY(ferry_group_rank(group, &rank));
  const Batch batch(rank);
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  ferry_exchange* exchange = nullptr;
  FERRY_TRY(ferry_exchange_create(group, &config, &exchange));
  const ferry_tensor topk_idx = batch.topk_idx_view();
  const ferry_tensor x = batch.x_view();
  ferry_route* route = nullptr;
  ferry_delivery* delivery = nullptr;
  FERRY_TRY(ferry_exchange_route(exchange, &topk_idx, nullptr, nullptr, &route));
  FERRY_TRY(ferry_exchange_dispatch(exchange, route, &x, nullptr, nullptr, &delivery));
  ferry_tensor tokens;
  ferry_tensor_init(&tokens);
  FERRY_TRY(ferry_group_barrier(group));

  FERRY_TRY(ferry_exchange_destroy(exchange));
  FERRY_TRY(ferry_exchange_destroy(exchange));

  EXPECT_EQ(ferry_delivery_tokens(delivery, &tokens), FERRY_INVALID_ARGUMENT);
  EXPECT_EQ(tokens.data, nullptr);
  ferry_delivery* second = delivery;
  EXPECT_EQ(ferry_exchange_dispatch(exchange, route, &x, nullptr, nullptr, &second),
            FERRY_INVALID_ARGUMENT);
  EXPECT_EQ(second, nullptr);
  ferry_counters counters;
  ferry_counters_init(&counters);
  EXPECT_NE(ferry_exchange_counters(exchange, &counters, nullptr, 0), FERRY_INTERNAL);
  ferry_exchange_free(exchange);
  ferry_route_free(route);
  ferry_delivery_free(delivery);
  return FERRY_OK;
}

TEST(CExchange, RefusesUseAfterDestroy) { expect_ok_on_all_ranks(use_after_destroy); }

TEST(CExchange, GivesItsConfigurationBack) {
  ferry_group* group = nullptr;
  ASSERT_EQ(ferry_group_self(&group), FERRY_OK) << ferry_last_error();
  const int32_t owners[kExperts] = {};
  ferry_exchange_config config = small_config(FERRY_LAYOUT_PADDED);
  config.expert_owner = owners;
  config.num_expert_owners = kExperts;
  ferry_exchange* exchange = nullptr;
  ASSERT_EQ(ferry_exchange_create(group, &config, &exchange), FERRY_OK) << ferry_last_error();
  // The exchange keeps the membership that it needs.
  ferry_group_free(group);
  ferry_exchange_config got;
  ferry_exchange_config_init(&got);

  EXPECT_EQ(ferry_exchange_get_config(exchange, &got), FERRY_OK) << ferry_last_error();

  EXPECT_EQ(got.num_experts, kExperts);
  EXPECT_EQ(got.hidden, kHidden);
  EXPECT_EQ(got.layout, FERRY_LAYOUT_PADDED);
  ASSERT_EQ(got.num_expert_owners, static_cast<size_t>(kExperts));
  EXPECT_TRUE(std::equal(owners, owners + kExperts, got.expert_owner));
  ferry_exchange_free(exchange);
}

TEST(CExchange, SaysWhatItNeedsWithoutAllocating) {
  const ferry_exchange_config config = small_config(FERRY_LAYOUT_PADDED);
  ferry_memory_need need;
  ferry_memory_need_init(&need);

  EXPECT_EQ(ferry_exchange_bytes_needed(&config, kRanks, &need), FERRY_OK) << ferry_last_error();

  EXPECT_GE(need.delivery_bytes, kLocalExperts * kRanks * kMaxTokens * kHidden * 4);
  EXPECT_GE(need.arena_virtual_bytes, need.delivery_bytes);
}

TEST(CExchange, RefusesAnIllegalConfigurationBeforeAnythingIsMade) {
  ferry_exchange_config config = small_config(FERRY_LAYOUT_BY_RANK);
  config.top_k = kExperts + 1;
  ferry_memory_need need;
  ferry_memory_need_init(&need);

  EXPECT_EQ(ferry_exchange_bytes_needed(&config, kRanks, &need), FERRY_INVALID_ARGUMENT);

  EXPECT_EQ(need.arena_virtual_bytes, 0);
}

}  // namespace
}  // namespace ferry::capi
