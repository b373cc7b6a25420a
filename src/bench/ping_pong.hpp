#pragma once

#include <cstdint>
#include <string>

#include "ferry/group.hpp"

namespace ferry::bench {

// Two ranks that bounce a flag over shared memory, with nothing between: what a round trip cannot
// beat on this machine.
struct PingPong {
  bool is_measured = false;
  std::string reason;     // why not
  double flag_us = 0;     // median round trip of the flag alone
  double payload_us = 0;  // with ping_bytes written before the ping, pong_bytes before the pong
  std::int64_t ping_bytes = 0;
  std::int64_t pong_bytes = 0;
};

// Collective over the group: ranks 0 and 1 play, the others wait. The result is complete on rank 0.
// Not measured where there is one rank, or where the two cannot open each other's memory. Throws
// kTimeout when the other player stops, and the group's own fault.
[[nodiscard]] PingPong measure_ping_pong(const Group& group,
                                         std::int64_t ping_bytes,
                                         std::int64_t pong_bytes,
                                         int iters);

}  // namespace ferry::bench
