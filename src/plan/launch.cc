#include "plan/launch.hpp"

#include <algorithm>

namespace ferry::plan {

namespace {

constexpr int kSmsAlone = 24;
constexpr int kMostWarps = 16;
constexpr int kStages = 2;
// More than half of what a multiprocessor has, on every GPU since sm_80.
constexpr std::int64_t kExclusiveSharedBytes = 120 * 1024;

int pick_blocks(const LaunchInput& input, int num_warps) {
  const int share = std::max(1, input.num_sms / std::max(1, input.ranks_on_gpu));
  const int sms =
      input.wanted_sms > 0 ? std::min(input.wanted_sms, input.num_sms) : std::min(kSmsAlone, share);
  const std::int64_t useful = (input.num_tokens + num_warps - 1) / num_warps;
  return static_cast<int>(std::clamp<std::int64_t>(useful, 1, sms));
}

}  // namespace

LaunchSize pick_dispatch_launch(const LaunchInput& input) {
  LaunchSize size;
  const std::int64_t stage_bytes = (input.row_bytes + 127) / 128 * 128;
  const std::int64_t fitting =
      input.has_bulk_copy ? input.shared_bytes / std::max<std::int64_t>(1, kStages * stage_bytes)
                          : 0;
  size.num_warps =
      static_cast<int>(fitting > 0 ? std::min<std::int64_t>(fitting, kMostWarps) : kMostWarps);
  if (fitting > 0) {
    size.num_stages = kStages;
    size.shared_bytes = size.num_warps * kStages * stage_bytes;
  }
  size.num_blocks = pick_blocks(input, size.num_warps);
  return size;
}

LaunchSize pick_combine_launch(const LaunchInput& input) {
  LaunchSize size;
  size.num_warps = kMostWarps;
  size.shared_bytes = std::min(kExclusiveSharedBytes, input.shared_bytes);
  size.num_blocks = pick_blocks(input, size.num_warps);
  return size;
}

}  // namespace ferry::plan
