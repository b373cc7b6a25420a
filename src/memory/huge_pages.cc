#include "memory/huge_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

// Linux 6.1; older C libraries have no name for it.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace ferry::memory {

void prefer_huge_pages(int fd, std::byte* base, std::int64_t offset, std::int64_t bytes) noexcept {
  const std::int64_t first = (offset + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const std::int64_t end = (offset + bytes) / kHugePageBytes * kHugePageBytes;
  if (end <= first) return;
  // MADV_COLLAPSE works whatever /sys/kernel/mm/transparent_hugepage/shmem_enabled says (it is
  // "never" on most systems), but refuses a block in which no page exists yet.
  for (std::int64_t block = first; block < end; block += kHugePageBytes) {
    if (::posix_fallocate(fd, block, 1) != 0) return;
  }
  while (::madvise(base + first, static_cast<std::size_t>(end - first), MADV_COLLAPSE) != 0 &&
         errno == EINTR) {
  }
}

}  // namespace ferry::memory
