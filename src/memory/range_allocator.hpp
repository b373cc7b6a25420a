#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace ferry::memory {

// First fit over one range of offsets, in whole units, neighbours merged on free. Pure arithmetic:
// it touches no memory. Not thread-safe.
class RangeAllocator {
 public:
  RangeAllocator(std::int64_t begin, std::int64_t bytes, std::int64_t unit_bytes);

  // The offset of a free range of at least `bytes` (> 0), or nothing.
  [[nodiscard]] std::optional<std::int64_t> allocate(std::int64_t bytes);
  // Returns the size of the freed range, or nothing where no allocation starts at `offset`.
  std::optional<std::int64_t> deallocate(std::int64_t offset);

  [[nodiscard]] std::int64_t largest_free_bytes() const;

 private:
  std::int64_t unit_bytes_;
  std::map<std::int64_t, std::int64_t> free_;  // offset -> bytes
  std::map<std::int64_t, std::int64_t> used_;
};

}  // namespace ferry::memory
