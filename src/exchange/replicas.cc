#include "base/error.hpp"
#include "ferry/exchange.hpp"
#include "plan/owner_map.hpp"

namespace ferry {

namespace {

template <typename Id>
void map_ids(const TensorView& logical,
             std::span<const std::vector<std::int32_t>> replicas,
             const TensorView& physical) {
  const auto count = static_cast<std::size_t>(logical.num_elements());
  const auto* from = static_cast<const Id*>(logical.data);
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Checked here because plan/ holds 32-bit ids.
    FERRY_CHECK(from[i] >= -1 && from[i] < static_cast<Id>(replicas.size()),
                ErrorCode::kInvalidArgument,
                "map_replicas: logical_topk[{}, {}] is {}, expected -1 or 0..{}",
                static_cast<std::int64_t>(i) / logical.shape[1],
                static_cast<std::int64_t>(i) % logical.shape[1], from[i],
                static_cast<std::int64_t>(replicas.size()) - 1);
    ids[i] = static_cast<std::int32_t>(from[i]);
  }
  std::vector<std::int32_t> slots(count);
  plan::map_replicas(ids, static_cast<int>(logical.shape[1]), replicas, slots);
  auto* to = static_cast<Id*>(physical.data);
  for (std::size_t i = 0; i < count; ++i) to[i] = slots[i];
}

}  // namespace

void map_replicas(const TensorView& logical_topk,
                  std::span<const std::vector<int>> replicas_of,
                  const TensorView& physical_topk) {
  const TensorView& logical = logical_topk;
  const TensorView& physical = physical_topk;
  FERRY_CHECK(
      logical.num_dims == 2 && physical.num_dims == 2 && logical.shape[0] == physical.shape[0] &&
          logical.shape[1] == physical.shape[1],
      ErrorCode::kInvalidArgument,
      "map_replicas: logical_topk is [{}, {}] with {} dimensions, physical_topk [{}, {}] with "
      "{}, expected two equal shapes [T, K]",
      logical.shape[0], logical.shape[1], logical.num_dims, physical.shape[0], physical.shape[1],
      physical.num_dims);
  FERRY_CHECK(
      logical.dtype == physical.dtype &&
          (logical.dtype == DType::kInt32 || logical.dtype == DType::kInt64),
      ErrorCode::kInvalidArgument,
      "map_replicas: logical_topk is {}, physical_topk is {}, expected int32 or int64 alike",
      dtype_name(logical.dtype), dtype_name(physical.dtype));
  FERRY_CHECK(logical.is_dense() && physical.is_dense(), ErrorCode::kInvalidArgument,
              "map_replicas: logical_topk and physical_topk must be dense");
  if (logical.dtype == DType::kInt32)
    map_ids<std::int32_t>(logical, replicas_of, physical);
  else
    map_ids<std::int64_t>(logical, replicas_of, physical);
}

}  // namespace ferry
