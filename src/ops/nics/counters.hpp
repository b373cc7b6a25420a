#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/facts/root.hpp"
#include "ops/finding.hpp"

namespace ferry::ops {

// What a port has carried since its driver loaded. The kernel counts data in 4-byte words.
struct PortBytes {
  std::string name{};  // "mlx5_0:1"
  bool is_up = false;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};
[[nodiscard]] std::vector<PortBytes> read_port_bytes(const Root& root);

// What each port carried from `before` to `after`; ports that only one of them has are left out.
// A counter that ran over counts what is left.
[[nodiscard]] std::vector<PortBytes> difference(const std::vector<PortBytes>& before,
                                                const std::vector<PortBytes>& after);

// Each port with a bar, the longest for the busiest. `seconds` 0: bytes, else rates.
[[nodiscard]] std::string format_ports(const std::vector<PortBytes>& ports, double seconds);
[[nodiscard]] nlohmann::ordered_json ports_json(const std::vector<PortBytes>& ports,
                                                double seconds);

// Did every port that is up move while a command ran? Below `idle_bytes` counts as not: the fabric
// itself talks a little. Less than half moved: fail, the GPU-NIC mapping is wrong.
[[nodiscard]] Finding judge_moved(const std::vector<PortBytes>& moved);

// Runs a program (no shell) and waits. Returns its exit code, 128 + signal where it was killed.
// Throws kSystem naming it where it cannot be started.
[[nodiscard]] int run_program(const std::vector<std::string>& words);

}  // namespace ferry::ops
