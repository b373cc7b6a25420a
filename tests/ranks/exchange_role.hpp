#pragma once

#include <array>
#include <string>

// The role "exchange": a rank that runs rounds of route, dispatch and combine and checks every sum.
//
// Arguments: mode (ht | ll), rounds, the rank that halts, and the step at which it halts in its
// third round. There it says "AT <step>" and obeys the next command: "go" goes on, "leave" leaves
// the group, "exit" ends the process without a word. Everyone says "FINISHED" after the last round,
// or "FAULT <code> <message>", then how later calls went: "AGAIN <milliseconds> <message>", "CHECK
// <message>", "DESTROYED <milliseconds>".

namespace ferry::ranks {

inline constexpr std::array<const char*, 7> kSteps = {
    "before-route",   "after-begin-route",   "before-dispatch", "after-begin-dispatch",
    "before-combine", "after-begin-combine", "between-rounds"};
inline constexpr int kNobody = -1;

}  // namespace ferry::ranks
