#pragma once

#include <cstdint>
#include <limits>

namespace ferry::plan {

// What the size of a move kernel depends on.
struct LaunchInput {
  int num_sms = 0;       // of the GPU
  int ranks_on_gpu = 1;  // that share it
  int wanted_sms = 0;    // the configuration's; 0: choose
  int most_blocks = std::numeric_limits<int>::max();
  std::int64_t num_tokens = 0;
  std::int64_t warp_bytes = 0;    // of shared memory that a warp needs for its rows
  std::int64_t shared_bytes = 0;  // of shared memory that a block may have
  bool has_bulk_copy = false;     // compute capability 9.0 and newer
};

struct LaunchSize {
  int num_blocks = 1;    // at most one a multiprocessor
  int num_warps = 1;     // a block
  bool is_bulk = false;  // rows go through shared memory, else through registers
  std::int64_t shared_bytes = 0;
};

// Dispatch: every warp holds its rows in shared memory, some arriving and some leaving, as many
// warps as fit. Alone on its GPU a rank takes 24 multiprocessors, which saturate NVLink with room
// to spare; ranks that share one divide it evenly.
[[nodiscard]] LaunchSize pick_dispatch_launch(const LaunchInput& input);

// Combine: 16 warps of registers a block, and shared memory asked for so that no two blocks meet on
// one multiprocessor.
[[nodiscard]] LaunchSize pick_combine_launch(const LaunchInput& input);

struct TeamLaunchSize {
  int num_blocks = 1;
  int num_teams = 1;  // a block
};

// Low-latency dispatch: tokens are spread as wide as they go, then one to each team of a block.
[[nodiscard]] TeamLaunchSize pick_team_launch(const LaunchInput& input, int most_teams);

}  // namespace ferry::plan
