#pragma once

#include <cstdint>

namespace ferry::layout {

// Hands out aligned byte ranges that cannot overlap, so that offsets and total come from one place.
class LayoutBuilder {
 public:
  static constexpr std::int64_t kPage = 4096;

  // The offset of a new range of `bytes`.
  constexpr std::int64_t take(std::int64_t bytes, std::int64_t alignment = kPage) {
    end_ = align_up(end_, alignment);
    const std::int64_t offset = end_;
    end_ += bytes;
    return offset;
  }

  [[nodiscard]] constexpr std::int64_t bytes(std::int64_t alignment = kPage) const {
    return align_up(end_, alignment);
  }

  [[nodiscard]] static constexpr std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
  }

 private:
  std::int64_t end_ = 0;
};

}  // namespace ferry::layout
