#include "ops/diagnose/evidence.hpp"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

namespace ferry::ops {
namespace {

Evidence read(const std::string& log) {
  Evidence evidence;
  std::istringstream stream(log);
  evidence.read(stream, "a.log");
  return evidence;
}

TEST(Evidence, CountsLinesAndRanksAndKeepsTheFirst) {
  const Evidence evidence =
      read("[rank1]: noise\n[rank4]: CPU recv timeout\n[rank2]: CPU recv timeout\n");

  const Sighting* timeout = evidence.find(Signal::kDispatchTimeout);
  ASSERT_NE(timeout, nullptr);
  EXPECT_EQ(timeout->count, 2);
  EXPECT_EQ(timeout->ranks, (std::set<int>{2, 4}));
  EXPECT_EQ(timeout->first->line, 2);
  EXPECT_EQ(evidence.ranks(), (std::set<int>{1, 2, 4}));
}

TEST(Evidence, OrdersTwoLogsByTheirClocks) {
  Evidence evidence;
  std::istringstream late("12:00:05 CPU recv timeout\n");
  std::istringstream early("12:00:01 start\nCPU recv timeout\n");
  evidence.read(late, "late.log");
  evidence.read(early, "early.log");

  EXPECT_EQ(evidence.find(Signal::kDispatchTimeout)->first->source, "early.log");
}

TEST(Evidence, CollectsVariablesThatAreSetOnOneLine) {
  const Evidence evidence = read("export NVSHMEM_IB_SL=3 NCCL_IB_TC=\"52\"\nNVSHMEM_IB_SL=4\n");

  EXPECT_EQ(evidence.settings().at("NVSHMEM_IB_SL"), "3");
  EXPECT_EQ(evidence.settings().at("NCCL_IB_TC"), "52");
}

TEST(Evidence, SurvivesBytesThatAreNoText) {
  std::mt19937 random(7);
  std::string bytes(1 << 20, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  const Evidence evidence = read(bytes + "\nCPU recv timeout\n");

  EXPECT_NE(evidence.find(Signal::kDispatchTimeout), nullptr);
}

TEST(Evidence, StaysSmallOverManyLines) {
  std::string log;
  for (int i = 0; i < 20000; ++i)
    log += "[rank" + std::to_string(i) + "]: A_" + std::to_string(i) + " NCCL_X" +
           std::to_string(i) + "=1 mlx5_" + std::to_string(i) + " CPU recv timeout\n";
  const Evidence evidence = read(log);

  EXPECT_EQ(evidence.find(Signal::kDispatchTimeout)->count, 20000);
  EXPECT_EQ(evidence.find(Signal::kMlx5Name)->values.size(), Evidence::kMostValues);
  EXPECT_EQ(evidence.ranks().size(), Evidence::kMostRanks);
  EXPECT_EQ(evidence.settings().size(), Evidence::kMostSettings);
}

}  // namespace
}  // namespace ferry::ops
