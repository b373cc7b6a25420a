#pragma once

#include <cstddef>
#include <cstring>

#include "cpu/vector_loop.hpp"

// Sanitizers do not see non-temporal stores; there the stores are plain ones, which they check.
#if defined(__SSE2__) && !defined(FERRY_SANITIZED)
#define FERRY_HAS_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace ferry::cpu {

inline constexpr std::size_t kLineBytes = 64;

// Copies whole lines past the cache to a line-aligned place. A partly written line would cost a
// read of the target's memory.
FERRY_INLINE_LOOP void stream_lines(std::byte* destination,
                                    const std::byte* source,
                                    std::size_t num_lines) noexcept {
#ifdef FERRY_HAS_STREAMING_STORES
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
#else
  std::memcpy(destination, source, num_lines * kLineBytes);
#endif
}

}  // namespace ferry::cpu
