#include "ops/diagnose/line_prefix.hpp"

#include <gtest/gtest.h>

namespace ferry::ops {
namespace {

TEST(LinePrefix, FindsTheRank) {
  const std::pair<const char*, int> cases[] = {
      {"[rank3]: Traceback", 3},
      {"[rank11]:[W101 12:00:00 socket.cpp:9] warning", 11},
      {"[1,5]<stderr>:oops", 5},
      {"7: srun's label", 7},
      {"Global rank: 6, num_recv_tokens: -1", 6},
      {"ferry[2/8] error cli: lost", 2},
      {"(EngineCore_DP4 pid=12) CPU recv timeout", 4},
      {"[2026-01-01 10:00:00 DP0 TP9 EP12] x", 12},
      {"node-1:4711:4712 [3] NCCL WARN x", 3},
      {"[default0]:line", 0},
      {"failed on rank 9 of 16", 9},
  };
  for (const auto& [line, rank] : cases) EXPECT_EQ(parse_rank(line), rank) << line;
  EXPECT_EQ(parse_rank("nothing of that kind"), std::nullopt);
}

TEST(LinePrefix, ReadsTimesSoThatTheyCompare) {
  const auto at = [](const char* line) { return *parse_time_s(line); };
  EXPECT_DOUBLE_EQ(at("2026-03-01 10:01:41,5 a") - at("2026-03-01T10:00:00 a"), 101.5);
  EXPECT_DOUBLE_EQ(at("INFO 03-02 00:00:01 a") - at("INFO 03-01 23:59:59 a"), 2);
  EXPECT_GT(at("04-01 00:00:00"), at("03-31 23:59:59"));
  EXPECT_TRUE(may_have_time("x 12:00:00"));
  EXPECT_FALSE(may_have_time("[rank3]: no::time"));
  EXPECT_EQ(parse_time_s("mlx5_0 at 10 of 12"), std::nullopt);
}

}  // namespace
}  // namespace ferry::ops
