#include "capi/counters.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace ferry::capi;

namespace {

// Lends the caller a list that lives in the route.
void lend(const std::vector<std::int64_t>& list, const int64_t** out_counts, size_t* out_num) {
  *out_counts = list.data();
  *out_num = list.size();
}

}  // namespace

ferry_status ferry_route_num_tokens(const ferry_route* route, int64_t* out_num_tokens) {
  return guard(__func__, {FERRY_REQUIRED(route), FERRY_REQUIRED(out_num_tokens)},
               [&] { *out_num_tokens = route->route.num_tokens(); });
}

ferry_status ferry_route_layout(const ferry_route* route, ferry_layout* out_layout) {
  return guard(__func__, {FERRY_REQUIRED(route), FERRY_REQUIRED(out_layout)},
               [&] { *out_layout = static_cast<ferry_layout>(route->route.layout()); });
}

ferry_status ferry_route_sizing(const ferry_route* route, ferry_sizing* out_sizing) {
  return guard(__func__, {FERRY_REQUIRED(route), FERRY_REQUIRED(out_sizing)},
               [&] { *out_sizing = static_cast<ferry_sizing>(route->route.sizing()); });
}

ferry_status ferry_route_num_recv_rows(const ferry_route* route, int64_t* out_num_rows) {
  return guard(__func__, {FERRY_REQUIRED(route), FERRY_REQUIRED(out_num_rows)},
               [&] { *out_num_rows = route->route.num_recv_rows(); });
}

ferry_status ferry_route_expert_counts(const ferry_route* route,
                                       const int64_t** out_counts,
                                       size_t* out_num_counts) {
  return guard(__func__,
               {FERRY_REQUIRED(route), FERRY_REQUIRED(out_counts), FERRY_REQUIRED(out_num_counts)},
               [&] { lend(route->route.expert_counts(), out_counts, out_num_counts); });
}

ferry_status ferry_route_aligned_expert_counts(const ferry_route* route,
                                               const int64_t** out_counts,
                                               size_t* out_num_counts) {
  return guard(__func__,
               {FERRY_REQUIRED(route), FERRY_REQUIRED(out_counts), FERRY_REQUIRED(out_num_counts)},
               [&] { lend(route->route.aligned_expert_counts(), out_counts, out_num_counts); });
}

ferry_status ferry_route_tokens_from_rank(const ferry_route* route,
                                          const int64_t** out_counts,
                                          size_t* out_num_counts) {
  return guard(__func__,
               {FERRY_REQUIRED(route), FERRY_REQUIRED(out_counts), FERRY_REQUIRED(out_num_counts)},
               [&] { lend(route->route.tokens_from_rank(), out_counts, out_num_counts); });
}

ferry_status ferry_route_counters(const ferry_route* route,
                                  ferry_counters* out_counters,
                                  int64_t* wait_ns_by_peer,
                                  size_t num_peers) {
  return guard(__func__, {FERRY_REQUIRED(route), FERRY_REQUIRED(out_counters)}, [&] {
    write_counters(route->route.counters(), out_counters, wait_ns_by_peer, num_peers);
  });
}

void ferry_route_free(ferry_route* route) { delete route; }
