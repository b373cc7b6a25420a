#include "plan/owner_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "unit/plan/expect_error.hpp"

namespace ferry::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OwnerMap, BlocksAreContiguous) {
  const OwnerMap map = make_block_owner_map(6, 3);

  EXPECT_THAT(map.rank_of, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(map.local_id_of, ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(map.experts_of, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_EQ(map.num_experts(), 6);
  EXPECT_EQ(map.num_ranks(), 3);
  EXPECT_EQ(map.num_local(2), 2);
}

TEST(OwnerMap, LocalIdsFollowExpertIdsWhateverTheMap) {
  const OwnerMap map = make_owner_map(std::vector<int>{2, 0, 2, 0, 2}, 4);

  EXPECT_THAT(map.local_id_of, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(map.experts_of,
              ElementsAre(ElementsAre(1, 3), IsEmpty(), ElementsAre(0, 2, 4), IsEmpty()));
}

TEST(OwnerMap, ReachesTheLargestSizes) {
  const OwnerMap map = make_block_owner_map(4096, 2048);

  EXPECT_EQ(map.rank_of[4095], 2047);
  EXPECT_EQ(map.local_id_of[4095], 1);
}

TEST(OwnerMap, NamesTheRemainderOfUnevenBlocks) {
  expect_error(ErrorCode::kInvalidArgument,
               "num_experts 256 over 7 ranks leaves a remainder of 4, expected a multiple of the "
               "ranks or an expert_owner map",
               [] { (void)make_block_owner_map(256, 7); });
}

TEST(OwnerMap, RefusesAnOwnerOutsideTheGroup) {
  expect_error(ErrorCode::kInvalidArgument, "expert_owner[2] is 4, expected a rank in 0..3", [] {
    (void)make_owner_map(std::vector<int>{0, 1, 4, -1}, 4);
  });
  expect_error(ErrorCode::kInvalidArgument, "expert_owner[0] is -1, expected a rank in 0..3",
               [] { (void)make_owner_map(std::vector<int>{-1}, 4); });
}

TEST(OwnerMap, RefusesSizesOutsideThePlannersReach) {
  expect_error(ErrorCode::kInvalidArgument, "num_experts is 0, expected 1..4096",
               [] { (void)make_block_owner_map(0, 1); });
  expect_error(ErrorCode::kInvalidArgument, "num_experts is 4097, expected 1..4096",
               [] { (void)make_owner_map(std::vector<int>(4097, 0), 1); });
  expect_error(ErrorCode::kInvalidArgument, "the group has 0 ranks, expected 1..2048",
               [] { (void)make_block_owner_map(8, 0); });
  expect_error(ErrorCode::kInvalidArgument, "the group has 2049 ranks, expected 1..2048",
               [] { (void)make_owner_map(std::vector<int>{0}, 2049); });
}

TEST(MapReplicas, SpreadsEqualTokensOverTheSlots) {
  const std::vector<std::vector<std::int32_t>> replicas = {{0, 5, 7}, {1}};
  const std::vector<std::int32_t> logical = {0, 1, 0, 1, 0, -1};
  std::vector<std::int32_t> physical(logical.size());

  map_replicas(logical, 2, replicas, physical);

  // Token t, column k takes slot (t * 31 + k) % count; 31 % 3 is 1.
  EXPECT_THAT(physical, ElementsAre(0, 1, 5, 1, 7, -1));
}

TEST(MapReplicas, RefusesWhatItCannotMap) {
  const std::vector<std::vector<std::int32_t>> replicas = {{0}, {}};
  std::vector<std::int32_t> out(2);
  expect_error(ErrorCode::kInvalidArgument, "logical_topk[0, 1] is 2, expected -1 or 0..1", [&] {
    map_replicas(std::vector<std::int32_t>{0, 2}, 2, replicas, out);
  });
  expect_error(ErrorCode::kInvalidArgument, "logical_topk[1, 0] is -2, expected -1 or 0..1", [&] {
    map_replicas(std::vector<std::int32_t>{0, -2}, 1, replicas, out);
  });
  expect_error(ErrorCode::kInvalidArgument,
               "logical expert 1 of logical_topk[0, 0] has no physical slot", [&] {
                 map_replicas(std::vector<std::int32_t>{1, 0}, 2, replicas, out);
               });
  expect_error(ErrorCode::kInvalidArgument,
               "logical_topk has 2 ids, expected a multiple of top_k 3", [&] {
                 map_replicas(std::vector<std::int32_t>{0, 0}, 3, replicas, out);
               });
  expect_error(ErrorCode::kInvalidArgument, "physical_topk has room for 2 ids, expected 1",
               [&] { map_replicas(std::vector<std::int32_t>{0}, 1, replicas, out); });
}

}  // namespace
}  // namespace ferry::plan
