#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ferry/ferry.h"

namespace ferry::capi {
namespace {

ferry_tensor ids(const std::vector<int32_t>& values, int64_t top_k) {
  const int64_t shape[2] = {static_cast<int64_t>(values.size()) / top_k, top_k};
  return ferry_tensor_dense(values.data(), FERRY_DTYPE_INT32, 2, shape);
}

TEST(MapReplicas, SpreadsTokensOverTheSlotsOfItsExpert) {
  const std::vector<int32_t> logical = {0, 1, 0, -1};
  std::vector<int32_t> physical(4, -9);
  const int32_t replicas_of[2][3] = {{5, 7, -1}, {6, -1, -1}};
  const ferry_tensor from = ids(logical, 2);
  const ferry_tensor to = ids(physical, 2);

  EXPECT_EQ(ferry_map_replicas(&from, replicas_of[0], 2, 3, &to), FERRY_OK) << ferry_last_error();

  // Token t, column k takes entry (t * 31 + k) % count.
  EXPECT_EQ(physical, (std::vector<int32_t>{5, 6, 7, -1}));
}

TEST(MapReplicas, RefusesAnExpertWithoutASlot) {
  const std::vector<int32_t> logical = {0, 1};
  std::vector<int32_t> physical(2, -9);
  const int32_t replicas_of[2] = {5, -1};
  const ferry_tensor from = ids(logical, 2);
  const ferry_tensor to = ids(physical, 2);

  EXPECT_EQ(ferry_map_replicas(&from, replicas_of, 2, 1, &to), FERRY_INVALID_ARGUMENT);
}

TEST(MapReplicas, RefusesATableOfHostileSize) {
  const std::vector<int32_t> logical = {0, 1};
  const int32_t replicas_of[1] = {0};
  const ferry_tensor from = ids(logical, 2);

  EXPECT_EQ(ferry_map_replicas(&from, replicas_of, SIZE_MAX, 2, &from), FERRY_INVALID_ARGUMENT);

  EXPECT_STREQ(ferry_last_error(),
               "replicas_of is [18446744073709551615, 2], expected at most 65536 either way");
}

}  // namespace
}  // namespace ferry::capi
