#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::bench {

// Zeroed memory of this process, with huge pages where the system grants them. Throws kNoResource.
class HostBuffer {
 public:
  explicit HostBuffer(std::int64_t bytes);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  // The first `count` elements.
  template <typename Element>
  [[nodiscard]] std::span<Element> as(std::int64_t count) const {
    return {static_cast<Element*>(base_), static_cast<std::size_t>(count)};
  }
  [[nodiscard]] void* base() const noexcept { return base_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void* base_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace ferry::bench
