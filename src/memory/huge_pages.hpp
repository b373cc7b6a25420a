#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::memory {

// What the processors that we know call a huge page; x86-64, and aarch64 with pages of 4 KiB.
inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// Backs the whole huge blocks inside [offset, offset + bytes) of the shared object behind `fd`,
// mapped from its start at `base`, with huge pages: rows that lie anywhere are then read at twice
// the rate, because the processor's address translation keeps up. What the pages hold stays; a
// block without any page gets one of zeros. A wish: without Linux 6.1, a mapping aligned to
// kHugePageBytes or free huge pages nothing changes. Costs about as much as touching the memory.
void prefer_huge_pages(int fd, std::byte* base, std::int64_t offset, std::int64_t bytes) noexcept;

}  // namespace ferry::memory
