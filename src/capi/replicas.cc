#include <vector>

#include "capi/guard.hpp"
#include "capi/tensor.hpp"
#include "ferry/exchange.hpp"

using namespace ferry::capi;
using ferry::ErrorCode;

namespace {

// Far above any table in use; keeps the product of the two from overflowing.
constexpr std::size_t kMaxSide = 65536;

std::vector<std::vector<int>> to_replicas(const int32_t* replicas_of,
                                          std::size_t num_logical,
                                          std::size_t max_replicas) {
  FERRY_CHECK(num_logical <= kMaxSide && max_replicas <= kMaxSide, ErrorCode::kInvalidArgument,
              "replicas_of is [{}, {}], expected at most {} either way", num_logical, max_replicas,
              kMaxSide);
  std::vector<std::vector<int>> replicas(num_logical);
  for (std::size_t logical = 0; logical < num_logical; ++logical)
    for (std::size_t column = 0; column < max_replicas; ++column) {
      const int slot = replicas_of[logical * max_replicas + column];
      if (slot != -1) replicas[logical].push_back(slot);
    }
  return replicas;
}

}  // namespace

ferry_status ferry_map_replicas(const ferry_tensor* logical_topk,
                                const int32_t* replicas_of,
                                size_t num_logical,
                                size_t max_replicas,
                                const ferry_tensor* physical_topk) {
  return guard(
      __func__,
      {FERRY_REQUIRED(logical_topk), FERRY_REQUIRED(replicas_of), FERRY_REQUIRED(physical_topk)},
      [&] {
        ferry::map_replicas(to_view("logical_topk", logical_topk),
                            to_replicas(replicas_of, num_logical, max_replicas),
                            to_view("physical_topk", physical_topk));
      });
}
