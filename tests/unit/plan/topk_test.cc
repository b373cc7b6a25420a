#include "plan/topk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace ferry::plan {
namespace {

using ::testing::ElementsAre;

template <typename Id>
TopkView view_of(const std::vector<Id>& ids, std::int64_t num_tokens, int top_k, int row_stride) {
  return {ids.data(), sizeof(Id) == 8, num_tokens, top_k, row_stride};
}

void expect_fault(const std::optional<TopkFault>& fault,
                  TopkFault::Kind kind,
                  std::int64_t token,
                  int k,
                  std::int64_t expert) {
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, kind);
  EXPECT_EQ(fault->token, token);
  EXPECT_EQ(fault->k, k);
  EXPECT_EQ(fault->expert, expert);
}

TEST(ReadTopk, CopiesBothIdWidthsAndSkipsTheStride) {
  const std::vector<std::int64_t> wide = {3, -1, 99, 0, 7, 99};
  const std::vector<std::int32_t> narrow = {3, -1, 99, 0, 7, 99};
  std::vector<std::int32_t> from_wide(4), from_narrow(4);

  EXPECT_FALSE(read_topk(view_of(wide, 2, 2, 3), 8, false, from_wide));
  EXPECT_FALSE(read_topk(view_of(narrow, 2, 2, 3), 8, false, from_narrow));

  EXPECT_THAT(from_wide, ElementsAre(3, -1, 0, 7));
  EXPECT_EQ(from_narrow, from_wide);
}

TEST(ReadTopk, AcceptsNoTokensAtANullPointer) {
  EXPECT_FALSE(read_topk({nullptr, true, 0, 8, 8}, 8, false, {}));
}

TEST(ReadTopk, NamesTheFirstIdOutOfRange) {
  const std::vector<std::int64_t> ids = {0, 1, 2, 8, -2, 3};
  std::vector<std::int32_t> out(6);
  expect_fault(read_topk(view_of(ids, 3, 2, 2), 8, false, out), TopkFault::Kind::kOutOfRange, 1, 1,
               8);
  expect_fault(read_topk(view_of(ids, 3, 2, 2), 9, false, out), TopkFault::Kind::kOutOfRange, 2, 0,
               -2);
}

TEST(ReadTopk, AnIdThatWouldWrapIn32BitsIsOutOfRange) {
  for (const std::int64_t id :
       {std::int64_t{1} << 32, (std::int64_t{1} << 32) - 1,
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const std::vector<std::int64_t> ids = {id};
    std::vector<std::int32_t> out(1);
    expect_fault(read_topk(view_of(ids, 1, 1, 1), 4096, true, out), TopkFault::Kind::kOutOfRange, 0,
                 0, id);
  }
}

TEST(ReadTopk, RefusesAnExpertTwiceInOneTokenOnly) {
  const std::vector<std::int32_t> ids = {5, 1, 5, 0, 1, 0};
  std::vector<std::int32_t> out(6);

  expect_fault(read_topk(view_of(ids, 2, 3, 3), 8, false, out), TopkFault::Kind::kDuplicate, 0, 2,
               5);
  EXPECT_FALSE(read_topk(view_of(ids, 3, 2, 2), 8, false, out));
}

TEST(ReadTopk, AcceptsDuplicatesWhenAsked) {
  const std::vector<std::int32_t> ids = {5, 5, 5};
  std::vector<std::int32_t> out(3);

  EXPECT_FALSE(read_topk(view_of(ids, 1, 3, 3), 8, true, out));

  EXPECT_THAT(out, ElementsAre(5, 5, 5));
}

TEST(ReadTopk, MinusOneTwiceIsNoDuplicate) {
  const std::vector<std::int32_t> ids = {-1, -1};
  std::vector<std::int32_t> out(2);
  EXPECT_FALSE(read_topk(view_of(ids, 1, 2, 2), 8, false, out));
}

TEST(ReadTopk, TheFirstFaultWinsOverAnEarlierColumnOfALaterToken) {
  const std::vector<std::int32_t> ids = {1, 1, -7, 2};
  std::vector<std::int32_t> out(4);
  expect_fault(read_topk(view_of(ids, 2, 2, 2), 8, false, out), TopkFault::Kind::kDuplicate, 0, 1,
               1);
}

TEST(TopkFault, ReadsAsOneLine) {
  EXPECT_EQ(describe({TopkFault::Kind::kOutOfRange, 2, 17, 300}, 3, 256),
            "rank 3 token 17: topk_idx[17, 2] is 300, expected -1 or 0..255");
  EXPECT_EQ(describe({TopkFault::Kind::kDuplicate, 5, 17, 12}, 3, 256),
            "rank 3 token 17: topk_idx[17, 5] names expert 12 again, expected each expert once "
            "(duplicates = refuse)");
}

TEST(TopkFault, SurvivesACorruptHeader) {
  EXPECT_EQ(describe({static_cast<TopkFault::Kind>(77), 0, 0, 0}, 1, 8),
            "rank 1 reports an unknown topk fault 77");
}

}  // namespace
}  // namespace ferry::plan
