#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "ferry/exchange.hpp"

namespace ferry {
namespace {

TensorView view_of(const std::vector<std::int64_t>& ids, std::int64_t num_tokens) {
  return TensorView::dense(ids.data(), DType::kInt64,
                           {num_tokens, static_cast<std::int64_t>(ids.size()) / num_tokens});
}

TEST(MapReplicas, SpreadsEqualTokensOverTheReplicas) {
  const std::vector<std::vector<int>> replicas = {{0, 4}, {1}};
  const std::vector<std::int64_t> logical = {0, 1, 0, 1, 0, -1};
  std::vector<std::int64_t> physical(6);

  map_replicas(view_of(logical, 3), replicas, view_of(physical, 3));

  EXPECT_EQ(physical, (std::vector<std::int64_t>{0, 1, 4, 1, 0, -1}));
}

TEST(MapReplicas, RefusesAnIdThatDoesNotFitItsRange) {
  // 2^32 once became expert 0, because the id was narrowed before it was checked.
  const std::vector<std::vector<int>> replicas = {{0}, {1}};
  std::vector<std::int64_t> ids = {0, std::int64_t{1} << 32};

  try {
    map_replicas(view_of(ids, 1), replicas, view_of(ids, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "map_replicas: logical_topk[0, 1] is 4294967296, expected -1 or 0..1");
  }
}

}  // namespace
}  // namespace ferry
