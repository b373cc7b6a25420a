#pragma once

#include <optional>
#include <string_view>

namespace ferry::ops {

// What launchers, frameworks and libraries write before a message. Both look at the first 200 bytes
// only, where a prefix stands.

// "[rank3]:", "[3/16]", "rank 3", "DP3 TP3", "(Worker_EP3 pid=7)", "[1,3]<stderr>", "host:12:34 [3]
// NCCL INFO", "ferry[3/8]".
[[nodiscard]] std::optional<int> parse_rank(std::string_view line);

// "2026-03-01 12:00:00,5", "03-01 12:00:00", "12:00:00" in seconds that compare within one log; the
// year is left out.
[[nodiscard]] std::optional<double> parse_time_s(std::string_view line);

// Whether the line may hold a time: cheap, and never wrong where it says no.
[[nodiscard]] bool may_have_time(std::string_view line) noexcept;

}  // namespace ferry::ops
