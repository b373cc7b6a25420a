#include "cpu/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/vector_loop.hpp"

// Sanitizers do not see non-temporal stores; there the copies are plain ones, which they check.
#if defined(__SSE2__) && !defined(FERRY_SANITIZED)
#define FERRY_HAS_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace ferry::cpu {
namespace {

constexpr std::size_t kLineBytes = 64;
// A block of the source stays in the first-level cache while it goes to every destination; rows of
// usual sizes are one block, so that each destination is written in one run.
constexpr std::size_t kBlockBytes = 16384;

// Fetches what will be read next while this block is still being written: streaming stores leave
// the read side idle. Past the end of the source lies the next row, or memory that is merely not
// used.
void prefetch(const std::byte* start, std::size_t bytes) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += kLineBytes)
    __builtin_prefetch(start + offset, 0, 2);
}

#ifdef FERRY_HAS_STREAMING_STORES
// Below this the fence and the unaligned ends cost more than the spared reads of the target.
constexpr std::size_t kSmallestStreamBytes = 256;

// Whole lines only: a partly written line costs a read of the target's memory.
void stream_lines(std::byte* destination, const std::byte* source, std::size_t num_lines) noexcept {
  auto* to = reinterpret_cast<__m128i*>(destination);
  const auto* from = reinterpret_cast<const __m128i*>(source);
  for (std::size_t line = 0; line < num_lines; ++line, to += 4, from += 4) {
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
}
#endif

}  // namespace

void stream_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  if (bytes == 0) return;  // the pointers may be null then
#ifdef FERRY_HAS_STREAMING_STORES
  if (bytes >= kSmallestStreamBytes) {
    auto* to = static_cast<std::byte*>(destination);
    const auto* from = static_cast<const std::byte*>(source);
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
    const std::size_t num_lines = (bytes - head) / kLineBytes;
    const std::size_t tail = head + num_lines * kLineBytes;
    std::memcpy(to, from, head);
    stream_lines(to + head, from + head, num_lines);
    std::memcpy(to + tail, from + tail, bytes - tail);
    return;
  }
#endif
  std::memcpy(destination, source, bytes);
}

void stream_copy_to_many(void* const* destinations,
                         int num_destinations,
                         const void* source,
                         std::size_t bytes) noexcept {
  const auto* from = static_cast<const std::byte*>(source);
  for (std::size_t offset = 0; offset < bytes; offset += kBlockBytes) {
    const std::size_t block = std::min(kBlockBytes, bytes - offset);
    for (int i = 0; i < num_destinations; ++i) {
      // Before the last copy the block itself is in the cache.
      if (i == num_destinations - 1) prefetch(from + offset + block, block);
      stream_copy(static_cast<std::byte*>(destinations[i]) + offset, from + offset, block);
    }
  }
}

void stream_fence() noexcept {
#ifdef FERRY_HAS_STREAMING_STORES
  // Pairs with nothing by itself: the release store that follows orders plain stores only.
  _mm_sfence();
#endif
}

}  // namespace ferry::cpu
