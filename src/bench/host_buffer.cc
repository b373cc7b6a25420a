#include "bench/host_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/human.hpp"

namespace ferry::bench {

HostBuffer::HostBuffer(std::int64_t bytes) : bytes_(std::max<std::int64_t>(bytes, 1)) {
  const auto length = static_cast<std::size_t>(bytes_);
  base_ = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FERRY_CHECK(base_ != MAP_FAILED, ErrorCode::kNoResource,
              "cannot map {} ({} bytes) for the bench: {}", human_bytes(bytes_), bytes_,
              errno_text(errno));
  ::madvise(base_, length, MADV_HUGEPAGE);  // a wish: refused where huge pages are off
}

HostBuffer::~HostBuffer() { ::munmap(base_, static_cast<std::size_t>(bytes_)); }

}  // namespace ferry::bench
