// Ranks on GPUs that die or stop: every other rank says so, and its context goes on working. Ranks
// are processes; no MPS, under which NVIDIA leaves open what a killed client does to the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <tuple>

#include "ferry/error.hpp"
#include "gpu/fault_role.hpp"
#include "support/spawn.hpp"

namespace ferry::gpu {
namespace {

using support::Clock;
using support::ProcessRanks;

constexpr int kNumRanks = 4;
constexpr int kVictim = 2;
// Contexts take turns on a shared card, 36 ms an operation: more than the CPU engine's two seconds.
constexpr std::chrono::seconds kWithin{4};

ProcessRanks::Options options_of(const std::string& mode,
                                 const std::string& rounds,
                                 int halting_rank,
                                 const std::string& step) {
  ProcessRanks::Options options;
  options.role = "gpu-exchange";
  options.num_ranks = kNumRanks;
  options.arguments = {mode, rounds, std::to_string(halting_rank), step};
  options.limit = std::chrono::seconds(60);
  return options;
}

void expect_named_fault(ProcessRanks& ranks,
                        int survivor,
                        ErrorCode code,
                        Clock::time_point since,
                        std::chrono::milliseconds within) {
  const auto fault = ranks.expect_line(survivor, "FAULT ");
  ASSERT_TRUE(fault.text.starts_with(std::to_string(static_cast<int>(code)) + " ")) << fault.text;
  const std::string message = fault.text.substr(2);
  EXPECT_LT(fault.when - since, within) << message;
  EXPECT_NE(message.find("rank " + std::to_string(kVictim)), std::string::npos) << message;
  ranks.expect_line(survivor, "KERNEL ran");
  const std::string again = ranks.expect_line(survivor, "AGAIN ").text;
  const std::string cause = again.substr(again.find(' ') + 1);
  EXPECT_TRUE(message.starts_with(cause)) << message << " | " << cause;
  EXPECT_EQ(ranks.expect_line(survivor, "CHECK ").text, cause);
  EXPECT_LT(std::stoi(ranks.expect_line(survivor, "DESTROYED ").text), 5000);
  ranks.expect_line(survivor, "KERNEL ran");
  EXPECT_EQ(ranks.wait_exit(survivor), 0);
}

void expect_named_fault_on_survivors(ProcessRanks& ranks,
                                     ErrorCode code,
                                     Clock::time_point since,
                                     std::chrono::milliseconds within) {
  for (int rank = 0; rank < kNumRanks; ++rank)
    if (rank != kVictim) expect_named_fault(ranks, rank, code, since, within);
}

class KilledGpuRank : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(KilledGpuRank, IsNamedByEverySurvivor) {
  const auto [mode, step] = GetParam();
  ProcessRanks ranks(options_of(mode, "5", kVictim, step));
  ranks.expect_line(kVictim, "AT ");

  const auto killed = Clock::now();
  ranks.signal(kVictim, SIGKILL);

  expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, killed, kWithin);
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep,
                         KilledGpuRank,
                         ::testing::Combine(::testing::Values("ht", "ll"),
                                            ::testing::ValuesIn(kSteps)),
                         [](const auto& one) {
                           std::string name =
                               std::get<0>(one.param) + std::string("_") + std::get<1>(one.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(KilledGpuRankAnywhere, IsNamedWhileRoundsRun) {
  for (const char* mode : {"ht", "ll"}) {
    ProcessRanks ranks(options_of(mode, "100000000", kNobody, "none"));
    for (int rank = 0; rank < kNumRanks; ++rank) ranks.expect_line(rank, "MET ");

    const auto killed = Clock::now();
    ranks.signal(kVictim, SIGKILL);

    expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, killed, kWithin);
  }
}

TEST(StoppedGpuRank, IsNamedWhenTheDeadlinePasses) {
  for (const char* mode : {"ht", "ll"}) {
    ProcessRanks::Options options = options_of(mode, "5", kVictim, "before-dispatch");
    options.environment = {{"FERRY_TIMEOUT_MS", "1500"}, {"FERRY_PROGRESS_TIMEOUT_MS", "1500"}};
    ProcessRanks ranks(options);
    ranks.expect_line(kVictim, "AT ");

    const auto stopped = Clock::now();
    ranks.signal(kVictim, SIGSTOP);

    expect_named_fault_on_survivors(ranks, ErrorCode::kTimeout, stopped, std::chrono::seconds(10));

    // When it wakes up, it learns what happened instead of waiting for ranks that have gone.
    ranks.signal(kVictim, SIGCONT);
    ranks.send_line(kVictim, "go");
    const auto fault = ranks.expect_line(kVictim, "FAULT ");
    EXPECT_TRUE(fault.text.starts_with("5 ") || fault.text.starts_with("6 ")) << fault.text;
    EXPECT_EQ(ranks.wait_exit(kVictim), 0);
  }
}

TEST(LeavingGpuRank, IsNamedByTheOthers) {
  ProcessRanks ranks(options_of("ht", "5", kVictim, "before-dispatch"));
  ranks.expect_line(kVictim, "AT ");

  const auto left = Clock::now();
  ranks.send_line(kVictim, "leave");

  expect_named_fault_on_survivors(ranks, ErrorCode::kPeerLost, left, kWithin);
}

}  // namespace
}  // namespace ferry::gpu
