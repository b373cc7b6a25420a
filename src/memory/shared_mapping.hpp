#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/unique_fd.hpp"

namespace ferry::memory {

// An anonymous shared-memory object of a fixed size that is born sparse. It has no name: nothing
// can stay behind, and the size of /dev/shm does not matter. Its size is sealed, so a peer cannot
// truncate it under our feet. Throws kSystem.
[[nodiscard]] UniqueFd make_shared_object(const char* label, std::int64_t bytes);

// A mapping of a shared-memory object. Thread ranks of one process that map the same object share
// one mapping: address space stays linear in the number of ranks, and the thread sanitizer sees
// both sides of every access.
class SharedMapping {
 public:
  // Maps all of the object behind `fd`, which must have exactly `bytes` and a sealed size. Throws
  // kSystem, or kInvalidArgument for an object of another size.
  [[nodiscard]] static std::shared_ptr<SharedMapping> open(int fd, std::int64_t bytes);

  SharedMapping(std::byte* base, std::int64_t bytes) noexcept : base_(base), bytes_(bytes) {}
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* base_;
  std::int64_t bytes_;
};

}  // namespace ferry::memory
