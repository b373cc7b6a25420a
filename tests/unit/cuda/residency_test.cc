#include "cuda/residency.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ferry::cuda {
namespace {

TEST(WaitingBlocks, AreCountedByDeviceWhileTheyLive) {
  const WaitingBlocks first(0, 16);
  {
    const WaitingBlocks second(0, 8);
    const WaitingBlocks other(1, 4);

    EXPECT_EQ(WaitingBlocks::on_device(0), 24);
    EXPECT_EQ(WaitingBlocks::on_device(1), 4);
  }

  EXPECT_EQ(WaitingBlocks::on_device(0), 16);
  EXPECT_EQ(WaitingBlocks::on_device(1), 0);
}

TEST(WaitingBlocks, MoveWithoutBeingCountedTwice) {
  WaitingBlocks held(0, 16);
  WaitingBlocks moved(std::move(held));
  EXPECT_EQ(WaitingBlocks::on_device(0), 16);

  moved = WaitingBlocks(0, 3);
  EXPECT_EQ(WaitingBlocks::on_device(0), 3);

  moved = {};
  EXPECT_EQ(WaitingBlocks::on_device(0), 0);
}

TEST(SumWaitingBlocks, CountsAProcessOnceHoweverManyThreadsTell) {
  const std::vector<std::string> told = {
      tell_waiting_blocks("gpu-a", "100", 32), tell_waiting_blocks("gpu-a", "100", 32),
      tell_waiting_blocks("gpu-a", "101", 16), tell_waiting_blocks("gpu-b", "102", 24)};

  EXPECT_EQ(sum_waiting_blocks("gpu-a", told), 48);
  EXPECT_EQ(sum_waiting_blocks("gpu-b", told), 24);
  EXPECT_EQ(sum_waiting_blocks("gpu", told), 0);
}

TEST(SumWaitingBlocks, ReadsIdsOfAnyBytes) {
  const std::string id{'\0', '/', '7', '/', '\xFF'};

  EXPECT_EQ(sum_waiting_blocks(id, std::vector{tell_waiting_blocks(id, "1", 5)}), 5);
}

}  // namespace
}  // namespace ferry::cuda
