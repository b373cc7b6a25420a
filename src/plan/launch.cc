#include "plan/launch.hpp"

#include <algorithm>

namespace ferry::plan {

namespace {

constexpr int kSmsAlone = 24;
constexpr int kMostWarps = 16;
// More than half of what a multiprocessor has, on every GPU since sm_80.
constexpr std::int64_t kExclusiveSharedBytes = 120 * 1024;

int pick_blocks(const LaunchInput& input) {
  const int share = std::max(1, input.num_sms / std::max(1, input.ranks_on_gpu));
  const int sms =
      input.wanted_sms > 0 ? std::min(input.wanted_sms, input.num_sms) : std::min(kSmsAlone, share);
  // A few tokens are spread as wide as they go.
  return static_cast<int>(
      std::clamp<std::int64_t>(input.num_tokens, 1, std::min(sms, input.most_blocks)));
}

}  // namespace

LaunchSize pick_dispatch_launch(const LaunchInput& input) {
  LaunchSize size;
  const std::int64_t fitting =
      input.has_bulk_copy && input.warp_bytes > 0 ? input.shared_bytes / input.warp_bytes : 0;
  size.is_bulk = fitting > 0;
  size.num_warps =
      static_cast<int>(size.is_bulk ? std::min<std::int64_t>(fitting, kMostWarps) : kMostWarps);
  size.shared_bytes = size.is_bulk ? size.num_warps * input.warp_bytes : 0;
  size.num_blocks = pick_blocks(input);
  return size;
}

LaunchSize pick_combine_launch(const LaunchInput& input) {
  LaunchSize size;
  size.num_warps = kMostWarps;
  size.shared_bytes = std::min(kExclusiveSharedBytes, input.shared_bytes);
  size.num_blocks = pick_blocks(input);
  return size;
}

TeamLaunchSize pick_team_launch(const LaunchInput& input, int most_teams) {
  TeamLaunchSize size;
  size.num_blocks = pick_blocks(input);
  const std::int64_t share = (input.num_tokens + size.num_blocks - 1) / size.num_blocks;
  size.num_teams = static_cast<int>(std::clamp<std::int64_t>(share, 1, most_teams));
  return size;
}

}  // namespace ferry::plan
