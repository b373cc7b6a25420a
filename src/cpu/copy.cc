#include "cpu/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/streaming.hpp"

namespace ferry::cpu {
namespace {

// What goes to one destination before the next one gets it: a row is read once, and the
// processor's write-combining buffers stay with few pages at a time. 256 to 4096 bytes do equally
// well, whole rows and single lines do not.
constexpr std::size_t kBlockBytes = 1024;

// Below this the unaligned ends cost more than the spared reads of the target.
constexpr std::size_t kSmallestStreamBytes = 256;

}  // namespace

void stream_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;  // the pointers may be null then
  if (bytes < kSmallestStreamBytes) {
    std::memcpy(destination, source, bytes);
    return;
  }
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t num_lines = (bytes - head) / kLineBytes;
  const std::size_t tail = head + num_lines * kLineBytes;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, num_lines);
  std::memcpy(to + tail, from + tail, bytes - tail);
}

void stream_copy_to_many(void* const* destinations,
                         int num_destinations,
                         const void* source,
                         std::size_t bytes) noexcept {
  const auto* from = static_cast<const std::byte*>(source);
  for (std::size_t offset = 0; offset < bytes; offset += kBlockBytes) {
    const std::size_t block = std::min(kBlockBytes, bytes - offset);
    for (int i = 0; i < num_destinations; ++i)
      stream_copy(static_cast<std::byte*>(destinations[i]) + offset, from + offset, block);
  }
}

void stream_fence() noexcept {
#ifdef FERRY_HAS_STREAMING_STORES
  // Pairs with nothing by itself: the release store that follows orders plain stores only.
  _mm_sfence();
#endif
}

}  // namespace ferry::cpu
