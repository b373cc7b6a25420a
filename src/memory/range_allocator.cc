#include "memory/range_allocator.hpp"

#include <algorithm>
#include <iterator>

namespace ferry::memory {

RangeAllocator::RangeAllocator(std::int64_t begin, std::int64_t bytes, std::int64_t unit_bytes)
    : unit_bytes_(unit_bytes) {
  if (bytes > 0) free_.emplace(begin, bytes);
}

std::optional<std::int64_t> RangeAllocator::allocate(std::int64_t bytes) {
  if (bytes <= 0 || bytes > INT64_MAX - unit_bytes_) return std::nullopt;
  const std::int64_t need = (bytes + unit_bytes_ - 1) / unit_bytes_ * unit_bytes_;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second < need) continue;
    const auto [offset, available] = *range;
    free_.erase(range);
    if (available > need) free_.emplace(offset + need, available - need);
    used_.emplace(offset, need);
    return offset;
  }
  return std::nullopt;
}

std::optional<std::int64_t> RangeAllocator::deallocate(std::int64_t offset) {
  const auto found = used_.find(offset);
  if (found == used_.end()) return std::nullopt;
  const std::int64_t bytes = found->second;
  used_.erase(found);

  auto freed = free_.emplace(offset, bytes).first;
  const auto next = std::next(freed);
  if (next != free_.end() && offset + bytes == next->first) {
    freed->second += next->second;
    free_.erase(next);
  }
  if (freed != free_.begin()) {
    const auto previous = std::prev(freed);
    if (previous->first + previous->second == offset) {
      previous->second += freed->second;
      free_.erase(freed);
    }
  }
  return bytes;
}

std::int64_t RangeAllocator::largest_free_bytes() const {
  std::int64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace ferry::memory
