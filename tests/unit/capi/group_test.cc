#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>

#include "ferry/ferry.h"

namespace ferry::capi {
namespace {

TEST(GroupSelf, HasOneMember) {
  ferry_group* group = nullptr;
  ASSERT_EQ(ferry_group_self(&group), FERRY_OK) << ferry_last_error();
  int32_t rank = -1;
  int32_t size = -1;
  int32_t num_nodes = -1;
  int32_t node = -1;
  int32_t local_rank = -1;
  int32_t node_of = -1;

  EXPECT_EQ(ferry_group_rank(group, &rank), FERRY_OK);
  EXPECT_EQ(ferry_group_size(group, &size), FERRY_OK);
  EXPECT_EQ(ferry_group_num_nodes(group, &num_nodes), FERRY_OK);
  EXPECT_EQ(ferry_group_node(group, &node), FERRY_OK);
  EXPECT_EQ(ferry_group_local_rank(group, &local_rank), FERRY_OK);
  EXPECT_EQ(ferry_group_node_of(group, 0, &node_of), FERRY_OK);

  EXPECT_EQ(rank, 0);
  EXPECT_EQ(size, 1);
  EXPECT_EQ(num_nodes, 1);
  EXPECT_EQ(node, 0);
  EXPECT_EQ(local_rank, 0);
  EXPECT_EQ(node_of, 0);
  EXPECT_EQ(ferry_group_barrier(group), FERRY_OK);
  EXPECT_EQ(ferry_group_check(group), FERRY_OK);
  ferry_group_free(group);
}

TEST(GroupLeave, MayBeCalledTwice) {
  ferry_group* group = nullptr;
  ASSERT_EQ(ferry_group_self(&group), FERRY_OK) << ferry_last_error();

  EXPECT_EQ(ferry_group_leave(group), FERRY_OK);
  EXPECT_EQ(ferry_group_leave(group), FERRY_OK);

  ferry_group_free(group);
}

TEST(GroupNodeOf, RefusesARankOutsideOfTheGroup) {
  ferry_group* group = nullptr;
  ASSERT_EQ(ferry_group_self(&group), FERRY_OK) << ferry_last_error();
  int32_t node = -7;

  EXPECT_EQ(ferry_group_node_of(group, 1, &node), FERRY_INVALID_ARGUMENT);
  EXPECT_EQ(ferry_group_node_of(group, -1, &node), FERRY_INVALID_ARGUMENT);

  EXPECT_EQ(node, -7);
  ferry_group_free(group);
}

TEST(GroupRunThreads, RunsTheBodyOncePerRank) {
  std::array<std::atomic<int>, 3> runs = {};

  const ferry_status status = ferry_group_run_threads(
      3, nullptr,
      [](ferry_group* group, void* user) {
        int32_t rank = -1;
        const ferry_status got = ferry_group_rank(group, &rank);
        if (got == FERRY_OK)
          ++(*static_cast<decltype(runs)*>(user))[static_cast<std::size_t>(rank)];
        return got;
      },
      &runs);

  EXPECT_EQ(status, FERRY_OK) << ferry_last_error();
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
}

TEST(GroupRunThreads, GivesTheMessageOfTheCallThatFailedOnItsRank) {
  const ferry_status status = ferry_group_run_threads(
      1, nullptr, [](ferry_group* group, void*) { return ferry_group_rank(group, nullptr); },
      nullptr);

  EXPECT_EQ(status, FERRY_INVALID_ARGUMENT);
  EXPECT_STREQ(ferry_last_error(), "ferry_group_rank got NULL for 'out_rank'");
}

TEST(GroupRunThreads, PassesTheCallersOwnStatusThrough) {
  const ferry_status status = ferry_group_run_threads(
      1, nullptr, [](ferry_group*, void*) -> ferry_status { return 1234; }, nullptr);

  EXPECT_EQ(status, 1234);
  EXPECT_STREQ(ferry_last_error(), "the body of rank 0 returned status 1234 (unknown error)");
}

TEST(GroupRunThreads, EndsForeignExceptionsAtTheBorder) {
  const ferry_status status = ferry_group_run_threads(
      1, nullptr,
      [](ferry_group*, void*) -> ferry_status { throw std::runtime_error("from the body"); },
      nullptr);

  EXPECT_EQ(status, FERRY_INTERNAL);
  EXPECT_STREQ(ferry_last_error(), "from the body");
}

TEST(GroupRunThreads, RefusesGroupsOfNobody) {
  for (const int32_t num_ranks : {0, -1})
    EXPECT_EQ(ferry_group_run_threads(
                  num_ranks, nullptr, [](ferry_group*, void*) -> ferry_status { return FERRY_OK; },
                  nullptr),
              FERRY_INVALID_ARGUMENT);
}

// Rank r contributes r bytes of value r; rank 0 contributes none and passes NULL.
ferry_status gather_own_rank(ferry_group* group, void*) {
  int32_t rank = 0;
  if (const ferry_status status = ferry_group_rank(group, &rank)) return status;
  const std::string own(static_cast<std::size_t>(rank), static_cast<char>(rank));
  ferry_gathered* gathered = nullptr;
  if (const ferry_status status =
          ferry_group_all_gather(group, rank == 0 ? nullptr : own.data(), own.size(), &gathered))
    return status;
  for (int32_t from = 0; from < 3; ++from) {
    const void* bytes = nullptr;
    size_t num_bytes = 99;
    EXPECT_EQ(ferry_gathered_from_rank(gathered, from, &bytes, &num_bytes), FERRY_OK);
    EXPECT_EQ(std::string(static_cast<const char*>(bytes), num_bytes),
              std::string(static_cast<std::size_t>(from), static_cast<char>(from)));
  }
  const void* bytes = nullptr;
  size_t num_bytes = 99;
  EXPECT_EQ(ferry_gathered_from_rank(gathered, 3, &bytes, &num_bytes), FERRY_INVALID_ARGUMENT);
  EXPECT_STREQ(ferry_last_error(), "rank is 3, expected 0..2");
  EXPECT_EQ(num_bytes, 99u);
  ferry_gathered_free(gathered);
  return FERRY_OK;
}

TEST(GroupAllGather, GivesTheBytesOfAllRanks) {
  EXPECT_EQ(ferry_group_run_threads(3, nullptr, gather_own_rank, nullptr), FERRY_OK)
      << ferry_last_error();
}

}  // namespace
}  // namespace ferry::capi
