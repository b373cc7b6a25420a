#pragma once

#include <array>

// The role "gpu-exchange": a rank that runs rounds of route, dispatch and combine on a GPU and
// checks every sum. Arguments: mode (ht | ll), rounds, the rank that halts (or kNobody), and the
// step at which it halts in its third round. It says and obeys what the role "exchange" of
// tests/ranks does; after a fault, and after destroying the exchange, also "KERNEL ran" when the
// context still runs one.

namespace ferry::gpu {

inline constexpr std::array<const char*, 5> kSteps = {
    "before-route", "before-dispatch", "after-begin-dispatch", "before-combine", "after-combine"};
inline constexpr int kNobody = -1;

}  // namespace ferry::gpu
