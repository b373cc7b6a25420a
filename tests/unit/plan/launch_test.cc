#include "plan/launch.hpp"

#include <gtest/gtest.h>

namespace ferry::plan {
namespace {

// An H200 of its own, rows of 7168 bf16 elements.
LaunchInput standard_input() {
  LaunchInput input;
  input.num_sms = 132;
  input.num_tokens = 4096;
  input.warp_bytes = 2 * 14336;
  input.shared_bytes = 227 * 1024 - 8 * 1024;
  input.has_bulk_copy = true;
  return input;
}

TEST(DispatchLaunch, FillsSharedMemoryWithWarpsOfTwoRows) {
  const LaunchSize size = pick_dispatch_launch(standard_input());

  EXPECT_TRUE(size.is_bulk);
  EXPECT_EQ(size.num_warps, 7);
  EXPECT_EQ(size.shared_bytes, 7 * 2 * 14336);
  EXPECT_EQ(size.num_blocks, 24);
}

TEST(DispatchLaunch, DividesASharedGpu) {
  LaunchInput input = standard_input();
  input.ranks_on_gpu = 8;

  EXPECT_EQ(pick_dispatch_launch(input).num_blocks, 16);
  EXPECT_EQ(pick_combine_launch(input).num_blocks, 16);
}

TEST(DispatchLaunch, TakesTheSmsItIsToldButNoMoreThanThereAre) {
  LaunchInput input = standard_input();
  input.wanted_sms = 8;
  EXPECT_EQ(pick_dispatch_launch(input).num_blocks, 8);

  input.wanted_sms = 500;
  EXPECT_EQ(pick_dispatch_launch(input).num_blocks, 132);
}

TEST(DispatchLaunch, StartsNoBlockWithoutAToken) {
  LaunchInput input = standard_input();
  input.num_tokens = 3;
  EXPECT_EQ(pick_dispatch_launch(input).num_blocks, 3);

  // One stays: it writes the counts of an empty batch.
  input.num_tokens = 0;
  EXPECT_EQ(pick_dispatch_launch(input).num_blocks, 1);
}

TEST(DispatchLaunch, TakesRegistersWithoutTheCopyEngineAndForRowsThatDoNotFit) {
  LaunchInput input = standard_input();
  input.has_bulk_copy = false;
  EXPECT_FALSE(pick_dispatch_launch(input).is_bulk);
  EXPECT_EQ(pick_dispatch_launch(input).shared_bytes, 0);

  input.has_bulk_copy = true;
  input.warp_bytes = input.shared_bytes + 1;
  EXPECT_FALSE(pick_dispatch_launch(input).is_bulk);
  EXPECT_EQ(pick_dispatch_launch(input).num_warps, 16);
}

TEST(DispatchLaunch, NeverExceedsTheSharedMemoryOfABlock) {
  for (std::int64_t bytes = 16; bytes < 300000; bytes = bytes * 3 / 2 + 16) {
    LaunchInput input = standard_input();
    input.warp_bytes = bytes;
    const LaunchSize size = pick_dispatch_launch(input);
    EXPECT_LE(size.shared_bytes, input.shared_bytes) << bytes;
    EXPECT_GE(size.num_warps, 1) << bytes;
    EXPECT_LE(size.num_warps, 16) << bytes;
  }
}

TEST(CombineLaunch, KeepsBlocksApart) {
  const LaunchSize size = pick_combine_launch(standard_input());

  EXPECT_EQ(size.num_warps, 16);
  EXPECT_GT(2 * size.shared_bytes, 227 * 1024);
}

TEST(TeamLaunch, SpreadsTokensWideAndThenOverTeams) {
  LaunchInput input = standard_input();
  input.ranks_on_gpu = 8;
  input.num_tokens = 128;

  EXPECT_EQ(pick_team_launch(input, 8).num_blocks, 16);
  EXPECT_EQ(pick_team_launch(input, 8).num_teams, 8);
  input.num_tokens = 20;
  EXPECT_EQ(pick_team_launch(input, 8).num_blocks, 16);
  EXPECT_EQ(pick_team_launch(input, 8).num_teams, 2);
  input.num_tokens = 3;
  EXPECT_EQ(pick_team_launch(input, 8).num_blocks, 3);
  EXPECT_EQ(pick_team_launch(input, 8).num_teams, 1);
}

TEST(TeamLaunch, LeavesMoreTokensThanTeamsToLaterRounds) {
  LaunchInput input = standard_input();
  input.num_tokens = 4096;

  EXPECT_EQ(pick_team_launch(input, 8).num_teams, 8);
}

TEST(TeamLaunch, HasABlockForARankWithoutTokens) {
  LaunchInput input = standard_input();
  input.num_tokens = 0;

  EXPECT_EQ(pick_team_launch(input, 8).num_blocks, 1);
  EXPECT_EQ(pick_team_launch(input, 8).num_teams, 1);
}

TEST(TeamLaunch, KeepsToTheMostBlocks) {
  LaunchInput input = standard_input();
  input.wanted_sms = 100;
  input.most_blocks = 32;

  EXPECT_EQ(pick_team_launch(input, 8).num_blocks, 32);
}

}  // namespace
}  // namespace ferry::plan
