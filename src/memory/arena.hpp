#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/unique_fd.hpp"
#include "boot/store.hpp"
#include "layout/arena_layout.hpp"
#include "memory/range_allocator.hpp"
#include "memory/shared_mapping.hpp"

namespace ferry::memory {

// One rank's arena over shared memory and the mappings of its peers' arenas. Address space is fixed
// at creation; pages exist only where they were reserved, so memory follows use, and a shortage is
// an Error before anything is touched, never SIGBUS. Used by its rank's calling thread.
class Arena {
 public:
  // Collective: creates this rank's object, passes its descriptor to the node and maps the peers'.
  [[nodiscard]] static Arena open(boot::Store& store,
                                  const layout::ArenaLayout& layout,
                                  std::chrono::milliseconds timeout);
  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;

  [[nodiscard]] std::byte* base() const noexcept { return bases_[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] std::byte* base_of(int peer) const noexcept {
    return bases_[static_cast<std::size_t>(peer)];
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  // The offset of a pointer into this rank's arena, or nothing.
  [[nodiscard]] std::optional<std::int64_t> offset_of(const void* pointer,
                                                      std::int64_t bytes) const noexcept;

  // Makes sure that [offset, offset + bytes) has pages. Idempotent; costs a bitmap walk when it
  // has. Throws kNoResource with need, available memory and cgroup limit.
  void reserve(std::int64_t offset, std::int64_t bytes);
  // Gives the pages back; the contents are lost. Whole pages inside the range only.
  void release(std::int64_t offset, std::int64_t bytes);

  // Overwrites the pages that exist in [offset, offset + bytes): for debugging reused buffers.
  void fill_reserved(std::int64_t offset, std::int64_t bytes, unsigned char value) noexcept;

  // The user's part: a range of the heap with its pages. Throws kNoResource.
  [[nodiscard]] void* allocate(std::int64_t bytes);
  // Throws kInvalidArgument for a pointer that allocate() did not return.
  void deallocate(void* pointer);

  [[nodiscard]] std::int64_t reserved_bytes() const noexcept { return reserved_pages_ * kPage; }
  [[nodiscard]] std::int64_t peak_reserved_bytes() const noexcept { return peak_pages_ * kPage; }

  // After a fault the memory is never handed out again: late writers may still own it.
  void retire() noexcept { is_retired_ = true; }

 private:
  static constexpr std::int64_t kPage = 4096;

  Arena(const layout::ArenaLayout& layout, int rank);
  void reserve_run(std::int64_t first_page, std::int64_t num_pages);
  void join_block(std::int64_t page) noexcept;

  int rank_;
  std::int64_t bytes_;
  UniqueFd fd_;
  std::vector<std::shared_ptr<SharedMapping>> mappings_;
  std::vector<std::byte*> bases_;
  std::vector<bool> has_page_;  // [bytes / kPage]
  std::int64_t reserved_pages_ = 0;
  std::int64_t peak_pages_ = 0;
  std::int64_t heap_bytes_;  // all that allocate() can hand out
  RangeAllocator heap_;
  bool is_retired_ = false;
};

}  // namespace ferry::memory
