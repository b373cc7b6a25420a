#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "boot/store.hpp"
#include "layout/arena_layout.hpp"
#include "memory/range_allocator.hpp"

namespace ferry::cuda {

// A piece of GPU memory, this process's or a peer's, mapped here. The physical memory lives as long
// as any process maps it.
class DeviceMapping {
 public:
  DeviceMapping() = default;
  DeviceMapping(const DeviceMapping&) = delete;
  DeviceMapping& operator=(const DeviceMapping&) = delete;
  ~DeviceMapping();

  // Creates memory on `device`; `fd`, where given, receives a descriptor that others can map.
  [[nodiscard]] static std::unique_ptr<DeviceMapping> create(int device,
                                                             std::int64_t bytes,
                                                             int* fd);
  // Maps a peer's memory for `device`.
  [[nodiscard]] static std::unique_ptr<DeviceMapping> open(int device, std::int64_t bytes, int fd);

  [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  // After a fault: late writers may still own it. The mapping is never undone.
  void leak() noexcept { base_ = 0; }

 private:
  void map(unsigned long long handle, int device);

  std::uint64_t base_ = 0;
  std::int64_t bytes_ = 0;
};

// One rank's arena in GPU memory and the mappings of its peers'. Fixed at creation; allocate() is
// arithmetic. Used by its rank's calling thread.
class Arena {
 public:
  // Collective: makes this rank's memory, passes its descriptor to the node and maps the peers'.
  [[nodiscard]] static Arena open(boot::Store& store,
                                  const layout::ArenaLayout& layout,
                                  int device,
                                  std::chrono::milliseconds timeout);

  [[nodiscard]] std::uint64_t base_of(int peer) const noexcept {
    return mappings_[static_cast<std::size_t>(peer)]->base();
  }
  [[nodiscard]] std::byte* base() const noexcept {
    return reinterpret_cast<std::byte*>(base_of(rank_));
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  [[nodiscard]] std::optional<std::int64_t> offset_of(const void* pointer,
                                                      std::int64_t bytes) const noexcept;
  // Throws kNoResource with need, the largest free piece and the option to raise.
  [[nodiscard]] void* allocate(std::int64_t bytes);
  // Throws kInvalidArgument for a pointer that allocate() did not return.
  void deallocate(void* pointer);

  void retire() noexcept { is_retired_ = true; }
  [[nodiscard]] bool is_retired() const noexcept { return is_retired_; }
  void leak() noexcept {
    for (const auto& mapping : mappings_) mapping->leak();
  }

 private:
  Arena(const layout::ArenaLayout& layout, int rank);

  int rank_;
  std::int64_t bytes_;
  std::vector<std::unique_ptr<DeviceMapping>> mappings_;
  std::int64_t heap_bytes_;
  memory::RangeAllocator heap_;
  bool is_retired_ = false;
};

}  // namespace ferry::cuda
