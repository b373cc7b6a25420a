#include <gtest/gtest.h>

#include <string>

#include "ferry/ferry.h"

namespace ferry::capi {
namespace {

// Stands for any handle or place: arguments are checked for NULL before one of them is used.
struct Anything {
  template <typename T>
  operator T*() {  // NOLINT(google-explicit-constructor)
    return reinterpret_cast<T*>(&bytes);
  }
  alignas(16) unsigned char bytes[256] = {};
};

void expect_null_refused(ferry_status status, const std::string& message) {
  EXPECT_EQ(status, FERRY_INVALID_ARGUMENT) << message;
  EXPECT_EQ(ferry_last_error(), message);
}

TEST(NullArguments, AreNamedByGroups) {
  Anything any;

  expect_null_refused(ferry_group_from_env(nullptr),
                      "ferry_group_from_env got NULL for 'out_group'");
  expect_null_refused(ferry_group_open(nullptr, any), "ferry_group_open got NULL for 'config'");
  expect_null_refused(ferry_group_open(any, nullptr), "ferry_group_open got NULL for 'out_group'");
  expect_null_refused(ferry_group_self(nullptr), "ferry_group_self got NULL for 'out_group'");
  expect_null_refused(ferry_group_run_threads(2, nullptr, nullptr, nullptr),
                      "ferry_group_run_threads got NULL for 'body'");
  expect_null_refused(ferry_group_rank(nullptr, any), "ferry_group_rank got NULL for 'group'");
  expect_null_refused(ferry_group_rank(any, nullptr), "ferry_group_rank got NULL for 'out_rank'");
  expect_null_refused(ferry_group_size(nullptr, any), "ferry_group_size got NULL for 'group'");
  expect_null_refused(ferry_group_size(any, nullptr), "ferry_group_size got NULL for 'out_size'");
  expect_null_refused(ferry_group_num_nodes(nullptr, any),
                      "ferry_group_num_nodes got NULL for 'group'");
  expect_null_refused(ferry_group_num_nodes(any, nullptr),
                      "ferry_group_num_nodes got NULL for 'out_num_nodes'");
  expect_null_refused(ferry_group_node(nullptr, any), "ferry_group_node got NULL for 'group'");
  expect_null_refused(ferry_group_node(any, nullptr), "ferry_group_node got NULL for 'out_node'");
  expect_null_refused(ferry_group_local_rank(nullptr, any),
                      "ferry_group_local_rank got NULL for 'group'");
  expect_null_refused(ferry_group_local_rank(any, nullptr),
                      "ferry_group_local_rank got NULL for 'out_local_rank'");
  expect_null_refused(ferry_group_node_of(nullptr, 0, any),
                      "ferry_group_node_of got NULL for 'group'");
  expect_null_refused(ferry_group_node_of(any, 0, nullptr),
                      "ferry_group_node_of got NULL for 'out_node'");
  expect_null_refused(ferry_group_all_gather(nullptr, any, 1, any),
                      "ferry_group_all_gather got NULL for 'group'");
  expect_null_refused(ferry_group_all_gather(any, any, 1, nullptr),
                      "ferry_group_all_gather got NULL for 'out_gathered'");
  expect_null_refused(ferry_group_all_gather(any, nullptr, 3, any),
                      "bytes is NULL, expected 3 bytes as num_bytes says");
  expect_null_refused(ferry_gathered_from_rank(nullptr, 0, any, any),
                      "ferry_gathered_from_rank got NULL for 'gathered'");
  expect_null_refused(ferry_gathered_from_rank(any, 0, nullptr, any),
                      "ferry_gathered_from_rank got NULL for 'out_bytes'");
  expect_null_refused(ferry_gathered_from_rank(any, 0, any, nullptr),
                      "ferry_gathered_from_rank got NULL for 'out_num_bytes'");
  expect_null_refused(ferry_group_barrier(nullptr), "ferry_group_barrier got NULL for 'group'");
  expect_null_refused(ferry_group_check(nullptr), "ferry_group_check got NULL for 'group'");
  expect_null_refused(ferry_group_leave(nullptr), "ferry_group_leave got NULL for 'group'");
}

TEST(NullArguments, AreNamedByExchanges) {
  Anything any;

  expect_null_refused(ferry_exchange_create(nullptr, any, any),
                      "ferry_exchange_create got NULL for 'group'");
  expect_null_refused(ferry_exchange_create(any, nullptr, any),
                      "ferry_exchange_create got NULL for 'config'");
  expect_null_refused(ferry_exchange_create(any, any, nullptr),
                      "ferry_exchange_create got NULL for 'out_exchange'");
  expect_null_refused(ferry_exchange_bytes_needed(nullptr, 2, any),
                      "ferry_exchange_bytes_needed got NULL for 'config'");
  expect_null_refused(ferry_exchange_bytes_needed(any, 2, nullptr),
                      "ferry_exchange_bytes_needed got NULL for 'out_need'");
  expect_null_refused(ferry_exchange_post(nullptr, any, any, nullptr),
                      "ferry_exchange_post got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_post(any, nullptr, any, nullptr),
                      "ferry_exchange_post got NULL for 'route'");
  expect_null_refused(ferry_exchange_post(any, any, nullptr, nullptr),
                      "ferry_exchange_post got NULL for 'outputs'");
  expect_null_refused(ferry_exchange_set_owner_map(nullptr, any, 1, nullptr),
                      "ferry_exchange_set_owner_map got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_set_owner_map(any, nullptr, 1, nullptr),
                      "ferry_exchange_set_owner_map got NULL for 'expert_owner'");
  expect_null_refused(ferry_exchange_allocate(nullptr, 1, nullptr, any),
                      "ferry_exchange_allocate got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_allocate(any, 1, nullptr, nullptr),
                      "ferry_exchange_allocate got NULL for 'out_pointer'");
  expect_null_refused(
      ferry_exchange_allocate_tensor(nullptr, FERRY_DTYPE_BF16, 1, any, nullptr, any),
      "ferry_exchange_allocate_tensor got NULL for 'exchange'");
  expect_null_refused(
      ferry_exchange_allocate_tensor(any, FERRY_DTYPE_BF16, 1, nullptr, nullptr, any),
      "ferry_exchange_allocate_tensor got NULL for 'shape'");
  expect_null_refused(
      ferry_exchange_allocate_tensor(any, FERRY_DTYPE_BF16, 1, any, nullptr, nullptr),
      "ferry_exchange_allocate_tensor got NULL for 'out_tensor'");
  expect_null_refused(ferry_exchange_deallocate(nullptr, any, nullptr),
                      "ferry_exchange_deallocate got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_check(nullptr),
                      "ferry_exchange_check got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_counters(nullptr, any, nullptr, 0),
                      "ferry_exchange_counters got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_counters(any, nullptr, nullptr, 0),
                      "ferry_exchange_counters got NULL for 'out_counters'");
  expect_null_refused(ferry_exchange_get_config(nullptr, any),
                      "ferry_exchange_get_config got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_get_config(any, nullptr),
                      "ferry_exchange_get_config got NULL for 'out_config'");
  expect_null_refused(ferry_exchange_num_local_experts(nullptr, any),
                      "ferry_exchange_num_local_experts got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_num_local_experts(any, nullptr),
                      "ferry_exchange_num_local_experts got NULL for 'out_num_local_experts'");
  expect_null_refused(ferry_exchange_destroy(nullptr),
                      "ferry_exchange_destroy got NULL for 'exchange'");
}

// The operations and their begin forms differ in the last argument only.
template <typename Out>
void expect_dispatch_refuses_null(ferry_status (*dispatch)(ferry_exchange*,
                                                           const ferry_route*,
                                                           const ferry_tensor*,
                                                           const ferry_dispatch_options*,
                                                           void*,
                                                           Out**),
                                  const std::string& name,
                                  const std::string& out_name) {
  Anything any;
  expect_null_refused(dispatch(nullptr, any, any, nullptr, nullptr, any),
                      name + " got NULL for 'exchange'");
  expect_null_refused(dispatch(any, nullptr, any, nullptr, nullptr, any),
                      name + " got NULL for 'route'");
  expect_null_refused(dispatch(any, any, nullptr, nullptr, nullptr, any),
                      name + " got NULL for 'x'");
  expect_null_refused(dispatch(any, any, any, nullptr, nullptr, nullptr),
                      name + " got NULL for '" + out_name + "'");
}

template <typename Out>
void expect_route_refuses_null(ferry_status (*route)(ferry_exchange*,
                                                     const ferry_tensor*,
                                                     const ferry_route_options*,
                                                     void*,
                                                     Out**),
                               const std::string& name,
                               const std::string& out_name) {
  Anything any;
  expect_null_refused(route(nullptr, any, nullptr, nullptr, any),
                      name + " got NULL for 'exchange'");
  expect_null_refused(route(any, nullptr, nullptr, nullptr, any),
                      name + " got NULL for 'topk_idx'");
  expect_null_refused(route(any, any, nullptr, nullptr, nullptr),
                      name + " got NULL for '" + out_name + "'");
}

TEST(NullArguments, AreNamedByOperations) {
  Anything any;

  expect_route_refuses_null(ferry_exchange_route, "ferry_exchange_route", "out_route");
  expect_route_refuses_null(ferry_exchange_begin_route, "ferry_exchange_begin_route",
                            "out_pending");
  expect_dispatch_refuses_null(ferry_exchange_dispatch, "ferry_exchange_dispatch", "out_delivery");
  expect_dispatch_refuses_null(ferry_exchange_begin_dispatch, "ferry_exchange_begin_dispatch",
                               "out_pending");
  expect_null_refused(ferry_exchange_combine(nullptr, any, any, any, nullptr, nullptr),
                      "ferry_exchange_combine got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_combine(any, nullptr, any, any, nullptr, nullptr),
                      "ferry_exchange_combine got NULL for 'route'");
  expect_null_refused(ferry_exchange_combine(any, any, nullptr, any, nullptr, nullptr),
                      "ferry_exchange_combine got NULL for 'y'");
  expect_null_refused(ferry_exchange_combine(any, any, any, nullptr, nullptr, nullptr),
                      "ferry_exchange_combine got NULL for 'out'");
  expect_null_refused(ferry_exchange_begin_combine(nullptr, any, any, any, nullptr, nullptr, any),
                      "ferry_exchange_begin_combine got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_begin_combine(any, nullptr, any, any, nullptr, nullptr, any),
                      "ferry_exchange_begin_combine got NULL for 'route'");
  expect_null_refused(ferry_exchange_begin_combine(any, any, nullptr, any, nullptr, nullptr, any),
                      "ferry_exchange_begin_combine got NULL for 'y'");
  expect_null_refused(ferry_exchange_begin_combine(any, any, any, nullptr, nullptr, nullptr, any),
                      "ferry_exchange_begin_combine got NULL for 'out'");
  expect_null_refused(ferry_exchange_begin_combine(any, any, any, any, nullptr, nullptr, nullptr),
                      "ferry_exchange_begin_combine got NULL for 'out_pending'");
  expect_null_refused(ferry_exchange_combine_weights(nullptr, any, any, any, nullptr),
                      "ferry_exchange_combine_weights got NULL for 'exchange'");
  expect_null_refused(ferry_exchange_combine_weights(any, nullptr, any, any, nullptr),
                      "ferry_exchange_combine_weights got NULL for 'route'");
  expect_null_refused(ferry_exchange_combine_weights(any, any, nullptr, any, nullptr),
                      "ferry_exchange_combine_weights got NULL for 'row_weights'");
  expect_null_refused(ferry_exchange_combine_weights(any, any, any, nullptr, nullptr),
                      "ferry_exchange_combine_weights got NULL for 'combined_weights'");
}

template <typename Handle, typename Out>
void expect_getter_refuses_null(ferry_status (*get)(const Handle*, Out*),
                                const std::string& name,
                                const std::string& handle_name,
                                const std::string& out_name) {
  Anything any;
  expect_null_refused(get(nullptr, any), name + " got NULL for '" + handle_name + "'");
  expect_null_refused(get(any, nullptr), name + " got NULL for '" + out_name + "'");
}

void expect_list_refuses_null(ferry_status (*get)(const ferry_route*, const int64_t**, size_t*),
                              const std::string& name) {
  Anything any;
  expect_null_refused(get(nullptr, any, any), name + " got NULL for 'route'");
  expect_null_refused(get(any, nullptr, any), name + " got NULL for 'out_counts'");
  expect_null_refused(get(any, any, nullptr), name + " got NULL for 'out_num_counts'");
}

TEST(NullArguments, AreNamedByRoutesAndDeliveries) {
  Anything any;

  expect_getter_refuses_null(ferry_route_num_tokens, "ferry_route_num_tokens", "route",
                             "out_num_tokens");
  expect_getter_refuses_null(ferry_route_layout, "ferry_route_layout", "route", "out_layout");
  expect_getter_refuses_null(ferry_route_sizing, "ferry_route_sizing", "route", "out_sizing");
  expect_getter_refuses_null(ferry_route_num_recv_rows, "ferry_route_num_recv_rows", "route",
                             "out_num_rows");
  expect_list_refuses_null(ferry_route_expert_counts, "ferry_route_expert_counts");
  expect_list_refuses_null(ferry_route_aligned_expert_counts, "ferry_route_aligned_expert_counts");
  expect_list_refuses_null(ferry_route_tokens_from_rank, "ferry_route_tokens_from_rank");
  expect_null_refused(ferry_route_counters(nullptr, any, nullptr, 0),
                      "ferry_route_counters got NULL for 'route'");
  expect_null_refused(ferry_route_counters(any, nullptr, nullptr, 0),
                      "ferry_route_counters got NULL for 'out_counters'");
  using Getter = ferry_status (*)(const ferry_delivery*, ferry_tensor*);
  for (const auto& [get, name] :
       {std::pair<Getter, const char*>{ferry_delivery_tokens, "ferry_delivery_tokens"},
        {ferry_delivery_scales, "ferry_delivery_scales"},
        {ferry_delivery_topk_idx, "ferry_delivery_topk_idx"},
        {ferry_delivery_topk_weights, "ferry_delivery_topk_weights"},
        {ferry_delivery_row_source, "ferry_delivery_row_source"},
        {ferry_delivery_row_expert, "ferry_delivery_row_expert"},
        {ferry_delivery_num_rows, "ferry_delivery_num_rows"},
        {ferry_delivery_expert_counts, "ferry_delivery_expert_counts"},
        {ferry_delivery_aligned_expert_counts, "ferry_delivery_aligned_expert_counts"},
        {ferry_delivery_expert_offsets, "ferry_delivery_expert_offsets"},
        {ferry_delivery_source_offsets, "ferry_delivery_source_offsets"}})
    expect_getter_refuses_null(get, name, "delivery", "out_tensor");
}

TEST(NullArguments, AreNamedByEverythingElse) {
  Anything any;

  expect_getter_refuses_null(ferry_tensor_num_elements, "ferry_tensor_num_elements", "tensor",
                             "out_num_elements");
  expect_getter_refuses_null(ferry_tensor_is_dense, "ferry_tensor_is_dense", "tensor",
                             "out_is_dense");
  expect_null_refused(ferry_pending_route_finish(nullptr, any),
                      "ferry_pending_route_finish got NULL for 'pending'");
  expect_null_refused(ferry_pending_route_finish(any, nullptr),
                      "ferry_pending_route_finish got NULL for 'out_route'");
  expect_null_refused(ferry_pending_delivery_finish(nullptr, any),
                      "ferry_pending_delivery_finish got NULL for 'pending'");
  expect_null_refused(ferry_pending_delivery_finish(any, nullptr),
                      "ferry_pending_delivery_finish got NULL for 'out_delivery'");
  expect_null_refused(ferry_pending_combine_finish(nullptr),
                      "ferry_pending_combine_finish got NULL for 'pending'");
  expect_null_refused(ferry_map_replicas(nullptr, any, 1, 1, any),
                      "ferry_map_replicas got NULL for 'logical_topk'");
  expect_null_refused(ferry_map_replicas(any, nullptr, 1, 1, any),
                      "ferry_map_replicas got NULL for 'replicas_of'");
  expect_null_refused(ferry_map_replicas(any, any, 1, 1, nullptr),
                      "ferry_map_replicas got NULL for 'physical_topk'");
  expect_null_refused(ferry_env_table_open(nullptr),
                      "ferry_env_table_open got NULL for 'out_table'");
  expect_getter_refuses_null(ferry_env_table_num_lines, "ferry_env_table_num_lines", "table",
                             "out_num_lines");
  expect_null_refused(ferry_env_table_line(nullptr, 0, any),
                      "ferry_env_table_line got NULL for 'table'");
  expect_null_refused(ferry_env_table_line(any, 0, nullptr),
                      "ferry_env_table_line got NULL for 'out_line'");
}

TEST(NullArguments, AreFreedLikeByFree) {
  ferry_gathered_free(nullptr);
  ferry_group_free(nullptr);
  ferry_exchange_free(nullptr);
  ferry_route_free(nullptr);
  ferry_delivery_free(nullptr);
  ferry_pending_route_free(nullptr);
  ferry_pending_delivery_free(nullptr);
  ferry_pending_combine_free(nullptr);
  ferry_env_table_free(nullptr);
}

}  // namespace
}  // namespace ferry::capi
