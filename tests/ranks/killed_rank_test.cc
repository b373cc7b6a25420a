// A rank that dies: every other rank says so within two seconds, wherever it died.

#include <csignal>
#include <filesystem>
#include <set>

#include "ranks/faults.hpp"

namespace ferry::ranks {
namespace {

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

using ModeAndStep = std::tuple<const char*, const char*>;

std::string name_of_case(const ::testing::TestParamInfo<ModeAndStep>& one) {
  return std::get<0>(one.param) + ("_" + name_of_step(std::get<1>(one.param)));
}

class KilledRank : public ::testing::TestWithParam<ModeAndStep> {};

TEST_P(KilledRank, IsNamedByEverySurvivor) {
  const auto [mode, step] = GetParam();
  ProcessRanks ranks(halting_ranks(mode, step));
  ranks.expect_line(kVictim, "AT ");

  const auto killed = Clock::now();
  ranks.signal(kVictim, SIGKILL);

  expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, killed);
  EXPECT_EQ(ranks.wait_exit(kVictim), 128 + SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep,
                         KilledRank,
                         ::testing::Combine(::testing::Values("ht", "ll"),
                                            ::testing::ValuesIn(kSteps)),
                         name_of_case);

TEST(KilledRankAnywhere, IsNamedWhileRoundsRun) {
  // No halt: the signal meets the victim wherever it is, several times over.
  for (const char* mode : {"ht", "ll"}) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      ProcessRanks::Options options = halting_ranks(mode, "");
      options.arguments = {mode, "100000000"};
      ProcessRanks ranks(options);
      for (int rank = 0; rank < kNumRanks; ++rank) ranks.expect_line(rank, "MET ");

      const auto killed = Clock::now();
      ranks.signal(kVictim, SIGKILL);

      expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, killed);
    }
  }
}

TEST(KilledRankAnywhere, LeavesNothingBehind) {
  const auto before = names_in("/dev/shm");
  {
    ProcessRanks ranks(halting_ranks("ht", "before-combine"));
    ranks.expect_line(kVictim, "AT ");
    for (int rank = 0; rank < kNumRanks; ++rank) ranks.signal(rank, SIGKILL);
    for (int rank = 0; rank < kNumRanks; ++rank) EXPECT_EQ(ranks.wait_exit(rank), 128 + SIGKILL);
  }
  EXPECT_EQ(names_in("/dev/shm"), before);
}

TEST(KilledRankAnywhere, IsRankZeroTheSameWay) {
  // Rank 0 serves the meeting; its death must not differ.
  ProcessRanks::Options options = halting_ranks("ht", "");
  options.arguments = {"ht", "5", "0", "before-dispatch"};
  ProcessRanks ranks(options);
  ranks.expect_line(0, "AT ");

  const auto killed = Clock::now();
  ranks.signal(0, SIGKILL);

  for (int rank = 1; rank < kNumRanks; ++rank) {
    const auto fault = ranks.expect_line(rank, "FAULT ");
    EXPECT_TRUE(fault.text.starts_with("6 ")) << fault.text;
    EXPECT_NE(fault.text.find("rank 0"), std::string::npos) << fault.text;
    EXPECT_LT(fault.when - killed, std::chrono::seconds(2));
    EXPECT_EQ(ranks.wait_exit(rank), 0);
  }
}

TEST(KilledRankAnywhere, IsNamedWhenItEndsWithoutAWord) {
  ProcessRanks ranks(halting_ranks("ht", "before-dispatch"));
  ranks.expect_line(kVictim, "AT ");

  const auto ended = Clock::now();
  ranks.send_line(kVictim, "exit");

  expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, ended);
  EXPECT_EQ(ranks.wait_exit(kVictim), 3);
}

}  // namespace
}  // namespace ferry::ranks
