#include "bench/ping_pong.hpp"

#include <gtest/gtest.h>

namespace ferry::bench {
namespace {

TEST(PingPong, IsNotPlayedAlone) {
  const PingPong result = measure_ping_pong(Group::self(), 100, 100, 10);

  EXPECT_FALSE(result.is_measured);
  EXPECT_EQ(result.reason, "there is one rank");
}

// Ranks receive different numbers of rows, so each comes with its own sizes; rank 0's are played.
TEST(PingPong, IsPlayedByTwoWithThePayloadsOfRankZero) {
  Group::run_threads(3, [](const Group& group) {
    const std::int64_t own = 10'000 * (group.rank() + 1);

    const PingPong result = measure_ping_pong(group, own, 2 * own, 20);

    EXPECT_EQ(result.ping_bytes, 10'000);
    EXPECT_EQ(result.pong_bytes, 20'000);
    EXPECT_EQ(result.is_measured, group.rank() <= 1);
    if (group.rank() == 0) {
      EXPECT_GT(result.payload_us, 0);
    }
  });
}

}  // namespace
}  // namespace ferry::bench
