#include "boot/gather_round.hpp"

#include <gmock/gmock.h>

namespace ferry::boot {
namespace {

using testing::ElementsAre;

TEST(GatherRound, CompletesWhenAllHaveComeInAnyOrder) {
  GatherRound round(3);

  EXPECT_FALSE(round.add(2, {0, "step", "c"}));
  EXPECT_FALSE(round.add(0, {0, "step", "a"}));
  EXPECT_THAT(round.missing(), ElementsAre(1));
  EXPECT_FALSE(round.is_complete());
  EXPECT_FALSE(round.add(1, {0, "step", ""}));

  ASSERT_TRUE(round.is_complete());
  EXPECT_THAT(round.take().parts, ElementsAre("a", "", "c"));
  EXPECT_EQ(round.number(), 1u);
  EXPECT_THAT(round.missing(), ElementsAre(0, 1, 2));
}

TEST(GatherRound, NamesBothStepsThatDiffer) {
  GatherRound round(3);
  EXPECT_FALSE(round.add(2, {0, "dispatch", ""}));

  const auto failure = round.add(1, {0, "combine", ""});

  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure->message,
            "ranks are at different steps: rank 2 at 'dispatch', rank 1 at 'combine'");
}

TEST(GatherRound, RejectsAnotherRoundAndASecondPart) {
  GatherRound round(2);
  EXPECT_FALSE(round.add(0, {0, "step", ""}));

  EXPECT_EQ(round.add(0, {0, "step", ""})->code, ErrorCode::kInternal);
  EXPECT_EQ(round.add(1, {5, "step", ""})->message,
            "rank 1 is at round 5 of the store, the group at 0; try: report it");
}

TEST(GatherRound, BoundsTheBytesOfARound) {
  GatherRound round(3, 10);
  EXPECT_FALSE(round.add(0, {0, "step", "12345"}));
  EXPECT_FALSE(round.add(1, {0, "step", "67890"}));

  const auto failure = round.add(2, {0, "step", "x"});

  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "the ranks give more than 10 B in all at step 'step'");
}

}  // namespace
}  // namespace ferry::boot
