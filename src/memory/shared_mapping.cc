#include "memory/shared_mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/human.hpp"
#include "memory/huge_pages.hpp"

namespace ferry::memory {

namespace {

// Objects that this process has mapped, by (device, inode): what lets thread ranks share a mapping.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<SharedMapping>> mappings;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// The mapping starts at a multiple of a huge page, which is what lets its pages be huge. Returns
// MAP_FAILED with errno set.
void* map_aligned(int fd, std::size_t bytes) {
  constexpr auto kAlignment = static_cast<std::size_t>(kHugePageBytes);
  if (bytes < kAlignment)
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  void* range = ::mmap(nullptr, bytes + kAlignment, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return range;
  auto* start = static_cast<std::byte*>(range);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(start) % kAlignment;
  void* base = ::mmap(start + head, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
  if (base == MAP_FAILED) {
    const int cause = errno;
    ::munmap(range, bytes + kAlignment);
    errno = cause;
    return base;
  }
  // Only whole pages can go: the object's last one stays mapped as far as it reaches.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + page - 1) / page * page;
  if (head > 0) ::munmap(start, head);
  if (head + mapped < bytes + kAlignment)
    ::munmap(start + head + mapped, bytes + kAlignment - head - mapped);
  return base;
}

}  // namespace

UniqueFd make_shared_object(const char* label, std::int64_t bytes) {
  UniqueFd fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FERRY_CHECK(fd.is_open(), ErrorCode::kSystem, "cannot create shared memory '{}': {}", label,
              errno_text(errno));
  FERRY_CHECK(::ftruncate(fd.get(), bytes) == 0, ErrorCode::kSystem,
              "cannot size shared memory '{}' to {} ({} bytes): {}", label, human_bytes(bytes),
              bytes, errno_text(errno));
  FERRY_CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
              ErrorCode::kSystem, "cannot seal shared memory '{}': {}", label, errno_text(errno));
  return fd;
}

std::shared_ptr<SharedMapping> SharedMapping::open(int fd, std::int64_t bytes) {
  struct stat status {};
  FERRY_CHECK(::fstat(fd, &status) == 0, ErrorCode::kSystem,
              "cannot stat a shared memory descriptor: {}", errno_text(errno));
  FERRY_CHECK(status.st_size == bytes, ErrorCode::kInvalidArgument,
              "a peer's shared memory has {} bytes, expected {}", status.st_size, bytes);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  FERRY_CHECK(seals >= 0 && (seals & F_SEAL_SHRINK) != 0, ErrorCode::kInvalidArgument,
              "a peer's shared memory can shrink (seals {}), expected a sealed size", seals);

  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  auto& entry = known.mappings[{status.st_dev, status.st_ino}];
  if (auto existing = entry.lock()) return existing;
  void* base = map_aligned(fd, static_cast<std::size_t>(bytes));
  FERRY_CHECK(base != MAP_FAILED, ErrorCode::kNoResource,
              "cannot map {} ({} bytes) of shared memory: {}; try: ulimit -v unlimited",
              human_bytes(bytes), bytes, errno_text(errno));
  // Huge pages where the system allows them; and a sparse arena has no place in a core file.
  ::madvise(base, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  ::madvise(base, static_cast<std::size_t>(bytes), MADV_DONTDUMP);
  auto mapping = std::make_shared<SharedMapping>(static_cast<std::byte*>(base), bytes);
  entry = mapping;
  std::erase_if(known.mappings, [](const auto& item) { return item.second.expired(); });
  return mapping;
}

SharedMapping::~SharedMapping() { ::munmap(base_, static_cast<std::size_t>(bytes_)); }

}  // namespace ferry::memory
