#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "boot/store.hpp"
#include "boot/wire.hpp"

namespace ferry::boot {

// What a store says when a collective does not complete; the same words for all stores.

inline constexpr std::string_view kMeetingStep = "meeting";  // the first round: all have joined

// "rank 2", "ranks 2, 5 and 7", "ranks 0, 1, … and 48 more".
[[nodiscard]] std::string name_ranks(const std::vector<std::uint32_t>& ranks);

[[nodiscard]] std::string late_message(int rank,
                                       std::string_view step,
                                       std::chrono::milliseconds waited,
                                       const std::vector<std::uint32_t>& missing);

// The meeting's own: names the place and how many connections were turned away there.
[[nodiscard]] std::string not_joined_message(int rank,
                                             int size,
                                             std::string_view address,
                                             std::chrono::milliseconds waited,
                                             const std::vector<std::uint32_t>& missing,
                                             std::uint32_t num_strangers);

[[nodiscard]] std::string lost_message(int rank, std::string_view step, int peer, PeerState state);

// Why rank 0 did not take this rank in.
[[nodiscard]] std::string refused_message(int rank,
                                          int size,
                                          std::string_view address,
                                          const Refused& refused);

}  // namespace ferry::boot
