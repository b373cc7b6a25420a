#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ferry::memory {

// How much more memory this process may take without being killed for it.
struct Availability {
  std::int64_t available_bytes = 0;                // the smaller of the two below
  std::int64_t machine_available_bytes = 0;        // MemAvailable
  std::optional<std::int64_t> cgroup_limit_bytes;  // tightest limit on the way to the root
  std::optional<std::int64_t> cgroup_available_bytes;
};

// Reads /proc/meminfo and the cgroup files (v2, else v1) below `root` ("/" for the live host). What
// cannot be read limits nothing.
[[nodiscard]] Availability read_availability(const std::filesystem::path& root = "/");

// "2.50 GiB available, cgroup limit 4.00 GiB (4294967296 bytes)".
[[nodiscard]] std::string describe(const Availability& availability);

}  // namespace ferry::memory
