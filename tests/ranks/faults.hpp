#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ferry/error.hpp"
#include "ranks/exchange_role.hpp"
#include "support/spawn.hpp"

// What survivors of a fault must say.

namespace ferry::ranks {

using support::Clock;
using support::ProcessRanks;

inline constexpr int kNumRanks = 4;
inline constexpr int kVictim = 2;

// `num_ranks` ranks in rounds, of which the victim halts at `step`.
[[nodiscard]] inline ProcessRanks::Options halting_ranks(const std::string& mode,
                                                         const std::string& step) {
  ProcessRanks::Options options;
  options.role = "exchange";
  options.num_ranks = kNumRanks;
  options.arguments = {mode, "5", std::to_string(kVictim), step};
  return options;
}

// A step as part of a test's name.
[[nodiscard]] inline std::string name_of_step(std::string step) {
  std::replace(step.begin(), step.end(), '-', '_');
  return step;
}

// The survivor fails with `code` within two seconds of `since`, names the victim, and from then on
// every call fails at once with the same cause; destroying works at once, twice.
inline void expect_named_fault(ProcessRanks& ranks,
                               int survivor,
                               ErrorCode code,
                               Clock::time_point since,
                               std::chrono::milliseconds within = std::chrono::seconds(2)) {
  const auto fault = ranks.expect_line(survivor, "FAULT ");
  const std::string prefix = std::to_string(static_cast<int>(code)) + " ";
  ASSERT_EQ(fault.text.substr(0, 2), prefix) << fault.text;
  const std::string message = fault.text.substr(2);
  EXPECT_LT(fault.when - since, within) << message;
  EXPECT_NE(message.find("rank " + std::to_string(kVictim)), std::string::npos) << message;

  const std::string again = ranks.expect_line(survivor, "AGAIN ").text;
  const std::size_t space = again.find(' ');
  EXPECT_LT(std::stoi(again.substr(0, space)), 500) << again;
  const std::string cause = again.substr(space + 1);
  EXPECT_TRUE(message.starts_with(cause)) << message << " | " << cause;
  EXPECT_EQ(ranks.expect_line(survivor, "CHECK ").text, cause);
  EXPECT_LT(std::stoi(ranks.expect_line(survivor, "DESTROYED ").text), 500);
  EXPECT_EQ(ranks.wait_exit(survivor), 0);
}

inline void expect_named_fault_on_survivors(
    ProcessRanks& ranks,
    ErrorCode code,
    Clock::time_point since,
    std::chrono::milliseconds within = std::chrono::seconds(2)) {
  for (int rank = 0; rank < kNumRanks; ++rank)
    if (rank != kVictim) expect_named_fault(ranks, rank, code, since, within);
}

}  // namespace ferry::ranks
