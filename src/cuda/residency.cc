#include "cuda/residency.hpp"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace ferry::cuda {

namespace {

struct Tally {
  std::mutex mutex;
  std::map<int, int> num_blocks;  // by device
};

Tally& tally() {
  static Tally instance;
  return instance;
}

void add(int device, int num_blocks) {
  const std::lock_guard lock(tally().mutex);
  tally().num_blocks[device] += num_blocks;
}

}  // namespace

WaitingBlocks::WaitingBlocks(int device, int num_blocks)
    : device_(device), num_blocks_(num_blocks) {
  add(device_, num_blocks_);
}

WaitingBlocks::WaitingBlocks(WaitingBlocks&& other) noexcept
    : device_(other.device_), num_blocks_(std::exchange(other.num_blocks_, 0)) {}

WaitingBlocks& WaitingBlocks::operator=(WaitingBlocks&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(num_blocks_, other.num_blocks_);
  return *this;
}

WaitingBlocks::~WaitingBlocks() {
  if (num_blocks_ > 0) add(device_, -num_blocks_);
}

int WaitingBlocks::on_device(int device) {
  const std::lock_guard lock(tally().mutex);
  return tally().num_blocks[device];
}

std::string tell_waiting_blocks(const std::string& gpu,
                                const std::string& process,
                                int num_blocks) {
  return gpu + "/" + process + "/" + std::to_string(num_blocks);
}

int sum_waiting_blocks(const std::string& gpu, std::span<const std::string> told) {
  int total = 0;
  for (const std::string& process : std::set<std::string>(told.begin(), told.end()))
    if (process.starts_with(gpu + "/")) total += std::stoi(process.substr(process.rfind('/') + 1));
  return total;
}

}  // namespace ferry::cuda
