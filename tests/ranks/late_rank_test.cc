// A rank that is alive but late: waited for until the deadline, then named.

#include <csignal>

#include "ranks/faults.hpp"

namespace ferry::ranks {
namespace {

ProcessRanks::Options impatient(ProcessRanks::Options options, const char* arrival_ms) {
  options.environment = {{"FERRY_TIMEOUT_MS", arrival_ms},
                         {"FERRY_PROGRESS_TIMEOUT_MS", "1500"},
                         {"FERRY_LATE_WARNING_MS", "200"}};
  return options;
}

std::string name_of_case(const ::testing::TestParamInfo<const char*>& one) {
  return name_of_step(one.param);
}

class StoppedRank : public ::testing::TestWithParam<const char*> {};

TEST_P(StoppedRank, IsNamedWithTheStepWhenTheDeadlinePasses) {
  for (const char* mode : {"ht", "ll"}) {
    ProcessRanks ranks(impatient(halting_ranks(mode, GetParam()), "1500"));
    ranks.expect_line(kVictim, "AT ");

    const auto stopped = Clock::now();
    ranks.signal(kVictim, SIGSTOP);

    expect_named_fault_on_survivors(ranks, ErrorCode::kTimeout, stopped, std::chrono::seconds(6));

    // When it wakes up, it learns what happened instead of waiting for ranks that have gone.
    ranks.signal(kVictim, SIGCONT);
    ranks.send_line(kVictim, "go");
    const auto fault = ranks.expect_line(kVictim, "FAULT ");
    EXPECT_TRUE(fault.text.starts_with("5 ") || fault.text.starts_with("6 ")) << fault.text;
    EXPECT_EQ(ranks.wait_exit(kVictim), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep, StoppedRank, ::testing::ValuesIn(kSteps), name_of_case);

TEST(StoppedRankAnywhere, IsNamedWhileRoundsRun) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    ProcessRanks::Options options = impatient(halting_ranks("ht", ""), "1500");
    options.arguments = {"ht", "100000000"};
    ProcessRanks ranks(options);
    for (int rank = 0; rank < kNumRanks; ++rank) ranks.expect_line(rank, "MET ");

    const auto stopped = Clock::now();
    ranks.signal(kVictim, SIGSTOP);

    expect_named_fault_on_survivors(ranks, ErrorCode::kTimeout, stopped, std::chrono::seconds(6));
  }
}

TEST(StoppedRankAnywhere, CanBeKilledWhileTheOthersWait) {
  ProcessRanks ranks(impatient(halting_ranks("ht", "before-dispatch"), "30000"));
  ranks.expect_line(kVictim, "AT ");
  ranks.signal(kVictim, SIGSTOP);
  ranks.expect_line(0, "ferry[0/4] warn");  // the others are waiting

  const auto killed = Clock::now();
  ranks.signal(kVictim, SIGKILL);

  expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, killed);
}

class LateRank : public ::testing::TestWithParam<const char*> {};

TEST_P(LateRank, IsWaitedFor) {
  for (const char* mode : {"ht", "ll"}) {
    ProcessRanks ranks(impatient(halting_ranks(mode, GetParam()), "30000"));
    ranks.expect_line(kVictim, "AT ");
    // It comes back after somebody has begun to complain.
    const std::string warning = ranks.expect_line(0, "ferry[0/4] warn").text;
    EXPECT_NE(warning.find("rank 2"), std::string::npos) << warning;

    ranks.send_line(kVictim, "go");

    for (int rank = 0; rank < kNumRanks; ++rank) {
      ranks.expect_line(rank, "FINISHED");
      EXPECT_EQ(ranks.wait_exit(rank), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    BeforeTheDeadline,
    LateRank,
    ::testing::Values("before-route", "before-dispatch", "before-combine", "between-rounds"),
    name_of_case);

TEST(LeavingRank, IsNamedByTheOthers) {
  for (const char* mode : {"ht", "ll"}) {
    ProcessRanks ranks(halting_ranks(mode, "before-dispatch"));
    ranks.expect_line(kVictim, "AT ");

    const auto left = Clock::now();
    ranks.send_line(kVictim, "leave");

    expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, left);
    EXPECT_NE(ranks.all_output().find("rank 2 left the group"), std::string::npos)
        << ranks.all_output();
  }
}

}  // namespace
}  // namespace ferry::ranks
