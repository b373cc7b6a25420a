#include "memory/arena.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/human.hpp"
#include "memory/availability.hpp"
#include "memory/huge_pages.hpp"

namespace ferry::memory {

namespace {

// Left to the machine: page tables, the ranks' own heaps, and what other ranks reserve between our
// look at the available memory and our taking it.
constexpr std::int64_t kMarginBytes = std::int64_t{64} << 20;
// One look at the available memory covers this much, so that ranks that reserve at the same time
// see each other's progress.
constexpr std::int64_t kStepBytes = std::int64_t{64} << 20;

}  // namespace

Arena::Arena(const layout::ArenaLayout& layout, int rank)
    : rank_(rank),
      bytes_(layout.total_bytes),
      has_page_(static_cast<std::size_t>(layout.total_bytes / kPage), false),
      heap_bytes_(layout.heap_bytes),
      heap_(layout.heap, layout.heap_bytes, kPage) {}

Arena Arena::open(boot::Store& store,
                  const layout::ArenaLayout& layout,
                  std::chrono::milliseconds timeout) {
  Arena arena(layout, store.rank());
  arena.fd_ = make_shared_object("ferry-arena", arena.bytes_);
  const std::vector<UniqueFd> fds =
      store.exchange_fds("exchange creation: arenas", arena.fd_.get(), timeout);
  for (int peer = 0; peer < store.size(); ++peer) {
    const UniqueFd& fd = fds[static_cast<std::size_t>(peer)];
    FERRY_CHECK(fd.is_open(), ErrorCode::kUnavailable,
                "rank {} cannot map the arena of rank {}: it is on another host", arena.rank_,
                peer);
    arena.mappings_.push_back(SharedMapping::open(fd.get(), arena.bytes_));
    arena.bases_.push_back(arena.mappings_.back()->base());
  }
  arena.reserve(layout.control, layout.deliveries[0] - layout.control);
  return arena;
}

std::optional<std::int64_t> Arena::offset_of(const void* pointer,
                                             std::int64_t bytes) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto start = reinterpret_cast<std::uintptr_t>(base());
  if (address < start || bytes < 0 || bytes > bytes_) return std::nullopt;
  const auto offset = static_cast<std::int64_t>(address - start);
  if (offset > bytes_ - bytes) return std::nullopt;
  return offset;
}

void Arena::reserve(std::int64_t offset, std::int64_t bytes) {
  if (bytes <= 0) return;
  FERRY_CHECK_INTERNAL(offset >= 0 && offset <= bytes_ - bytes,
                       "reserving [{}, +{}) of an arena of {} bytes", offset, bytes, bytes_);
  const std::int64_t end_page = (offset + bytes + kPage - 1) / kPage;
  std::int64_t page = offset / kPage;
  while (page < end_page) {
    while (page < end_page && has_page_[static_cast<std::size_t>(page)]) ++page;
    const std::int64_t first = page;
    while (page < end_page && !has_page_[static_cast<std::size_t>(page)]) ++page;
    if (page > first) {
      reserve_run(first, page - first);
      join_block(first);
      join_block(page - 1);
    }
  }
}

// Makes the block around `page` huge when a run that only touched it has completed it.
void Arena::join_block(std::int64_t page) noexcept {
  constexpr std::int64_t kPagesPerBlock = kHugePageBytes / kPage;
  const std::int64_t first = page / kPagesPerBlock * kPagesPerBlock;
  const std::int64_t end = first + kPagesPerBlock;
  if (end * kPage > bytes_) return;
  if (std::find(has_page_.begin() + first, has_page_.begin() + end, false) !=
      has_page_.begin() + end)
    return;
  prefer_huge_pages(fd_.get(), base(), first * kPage, kHugePageBytes);
}

void Arena::reserve_run(std::int64_t first_page, std::int64_t num_pages) {
  while (num_pages > 0) {
    const std::int64_t step = std::min(num_pages, kStepBytes / kPage);
    const Availability availability = read_availability();
    const auto refuse = [&](const std::string& cause) {
      FERRY_THROW(ErrorCode::kNoResource,
                  "rank {} needs {} ({} bytes) more of arena memory: {}; {}; try: fewer tokens, "
                  "fewer ranks, or a larger limit",
                  rank_, human_bytes(num_pages * kPage), num_pages * kPage, describe(availability),
                  cause);
    };
    if (availability.available_bytes < num_pages * kPage + kMarginBytes)
      refuse(fmt::format("{} are kept free", human_bytes(kMarginBytes)));
    prefer_huge_pages(fd_.get(), base(), first_page * kPage, step * kPage);
    int cause = EINTR;
    while (cause == EINTR) cause = ::posix_fallocate(fd_.get(), first_page * kPage, step * kPage);
    if (cause != 0) refuse(errno_text(cause));
    std::fill_n(has_page_.begin() + first_page, step, true);
    reserved_pages_ += step;
    peak_pages_ = std::max(peak_pages_, reserved_pages_);
    first_page += step;
    num_pages -= step;
  }
}

void Arena::release(std::int64_t offset, std::int64_t bytes) {
  const std::int64_t first = (offset + kPage - 1) / kPage;
  const std::int64_t end = (offset + bytes) / kPage;
  if (end <= first) return;
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * kPage,
              (end - first) * kPage);
  for (std::int64_t page = first; page < end; ++page) {
    if (!has_page_[static_cast<std::size_t>(page)]) continue;
    has_page_[static_cast<std::size_t>(page)] = false;
    --reserved_pages_;
  }
}

void Arena::fill_reserved(std::int64_t offset, std::int64_t bytes, unsigned char value) noexcept {
  for (std::int64_t page = offset / kPage; page * kPage < offset + bytes; ++page)
    if (has_page_[static_cast<std::size_t>(page)])
      std::memset(base() + page * kPage, value, static_cast<std::size_t>(kPage));
}

void* Arena::allocate(std::int64_t bytes) {
  FERRY_CHECK(!is_retired_, ErrorCode::kNoResource,
              "rank {}: the arena is retired after a fault and hands out no memory", rank_);
  FERRY_CHECK(bytes > 0, ErrorCode::kInvalidArgument, "allocate needs bytes > 0, got {}", bytes);
  const std::optional<std::int64_t> offset = heap_.allocate(bytes);
  FERRY_CHECK(
      offset.has_value(), ErrorCode::kNoResource,
      "rank {} has no {} ({} bytes) in one piece in its arena: the largest free piece is {} "
      "of {} bytes; try: a larger arena_bytes",
      rank_, human_bytes(bytes), bytes, heap_.largest_free_bytes(), heap_bytes_);
  try {
    reserve(*offset, bytes);
  } catch (...) {
    heap_.deallocate(*offset);
    release(*offset, bytes);  // what was reserved before the shortage
    throw;
  }
  return base() + *offset;
}

void Arena::deallocate(void* pointer) {
  const std::optional<std::int64_t> offset = offset_of(pointer, 0);
  const std::optional<std::int64_t> bytes = offset ? heap_.deallocate(*offset) : std::nullopt;
  FERRY_CHECK(bytes.has_value(), ErrorCode::kInvalidArgument,
              "rank {}: deallocate of {}, which allocate() did not return", rank_,
              fmt::ptr(pointer));
  if (!is_retired_) release(*offset, *bytes);
}

}  // namespace ferry::memory
