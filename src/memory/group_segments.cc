#include "memory/group_segments.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <fstream>
#include <new>

namespace ferry::memory {

namespace {

using layout::FaultRecord;
using layout::GroupSegment;

// Measured on two cores (8 ranks: pure spinning 12 ms a barrier, this 4.5 us).
constexpr int kPauses = 100;
constexpr int kYields = 16;

void futex_wait(std::atomic<std::uint32_t>& word,
                std::uint32_t expected,
                std::chrono::nanoseconds longest) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>((longest - seconds).count())};
  // Not FUTEX_PRIVATE: the word is shared between processes.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Nonce {
  std::uint64_t words[2];
};

Nonce random_nonce() {
  Nonce nonce{};
  FERRY_CHECK(::getrandom(&nonce, sizeof(nonce), 0) == sizeof(nonce), ErrorCode::kSystem,
              "cannot get random bytes: {}", errno_text(errno));
  return nonce;
}

}  // namespace

int num_usable_cores() {
  cpu_set_t set;
  int cores = 1;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && quota > 0 && period > 0)
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(quota / period))));
  return std::max(cores, 1);
}

GroupSegments GroupSegments::open(boot::Store& store,
                                  int num_pretended_nodes,
                                  std::chrono::milliseconds timeout) {
  GroupSegments out;
  out.rank_ = store.rank();
  const auto size = static_cast<std::size_t>(store.size());
  const UniqueFd fd = make_shared_object("ferry-group", sizeof(GroupSegment));
  const auto own = SharedMapping::open(fd.get(), sizeof(GroupSegment));
  auto* segment = new (own->base()) GroupSegment;
  const Nonce nonce = random_nonce();
  std::memcpy(segment->nonce, nonce.words, sizeof(nonce));

  const std::vector<UniqueFd> fds = store.exchange_fds("group: segments", fd.get(), timeout);
  const std::string nonce_bytes(reinterpret_cast<const char*>(&nonce), sizeof(nonce));
  const auto nonces = store.all_gather("group: nonces", nonce_bytes, timeout);
  std::string reachable(size, '0');
  out.mappings_.resize(size);
  out.segments_.resize(size, nullptr);
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (!fds[peer].is_open()) continue;
    auto mapping = SharedMapping::open(fds[peer].get(), sizeof(GroupSegment));
    auto* mapped = reinterpret_cast<GroupSegment*>(mapping->base());
    if (nonces[peer].size() != sizeof(Nonce) || mapped->magic != GroupSegment::kMagic ||
        std::memcmp(mapped->nonce, nonces[peer].data(), sizeof(Nonce)) != 0)
      continue;
    out.mappings_[peer] = std::move(mapping);
    out.segments_[peer] = mapped;
    reachable[peer] = '1';
  }

  const auto rows = store.all_gather("group: nodes", reachable, timeout);
  std::vector<std::vector<bool>> can_map(size, std::vector<bool>(size, false));
  for (std::size_t rank = 0; rank < size; ++rank)
    for (std::size_t peer = 0; peer < std::min(size, rows[rank].size()); ++peer)
      can_map[rank][peer] = rows[rank][peer] == '1';
  out.nodes_ = topo::make_node_map(can_map, num_pretended_nodes);

  const auto& node_of = out.nodes_.node_of;
  const auto here =
      std::count(node_of.begin(), node_of.end(), node_of[static_cast<std::size_t>(out.rank_)]);
  out.is_oversubscribed_ = static_cast<int>(here) > num_usable_cores();
  return out;
}

void GroupSegments::notify(int peer) const noexcept {
  GroupSegment* segment = segments_[static_cast<std::size_t>(peer)];
  if (segment == nullptr) return;
  // seq_cst on both words: either we see the waiter and wake it, or the waiter sees the new count
  // and does not sleep (pairs with Waiter::pause).
  segment->inbox.fetch_add(1, std::memory_order_seq_cst);
  if (segment->num_waiters.load(std::memory_order_seq_cst) != 0) futex_wake(segment->inbox);
}

void GroupSegments::notify_all() const noexcept {
  for (int peer = 0; peer < static_cast<int>(segments_.size()); ++peer)
    if (peer != rank_) notify(peer);
}

GroupSegments::Waiter::Waiter(const GroupSegments& segments) noexcept
    : segments_(segments),
      num_pauses_left_(segments.is_oversubscribed_ ? 0 : kPauses),
      num_yields_left_(kYields) {}

std::uint32_t GroupSegments::Waiter::ticket() const noexcept {
  return segments_.segments_[static_cast<std::size_t>(segments_.rank_)]->inbox.load(
      std::memory_order_seq_cst);
}

void GroupSegments::Waiter::pause(std::uint32_t ticket, std::chrono::nanoseconds longest) noexcept {
  if (num_pauses_left_ > 0) {
    --num_pauses_left_;
    cpu_pause();
    return;
  }
  if (num_yields_left_ > 0) {
    --num_yields_left_;
    ::sched_yield();
    return;
  }
  GroupSegment* own = segments_.segments_[static_cast<std::size_t>(segments_.rank_)];
  own->num_waiters.fetch_add(1, std::memory_order_seq_cst);
  // The kernel compares the inbox with the ticket under its own lock: a signal since the ticket was
  // taken makes this return at once.
  futex_wait(own->inbox, ticket, longest);
  own->num_waiters.fetch_sub(1, std::memory_order_seq_cst);
}

void GroupSegments::raise_fault(ErrorCode code, const std::string& text) const noexcept {
  for (GroupSegment* segment : segments_) {
    if (segment == nullptr) continue;
    std::uint32_t expected = GroupSegment::kNone;
    if (!segment->fault_state.compare_exchange_strong(expected, GroupSegment::kWriting)) continue;
    segment->fault.code = static_cast<std::int32_t>(code);
    segment->fault.reporter = rank_;
    const std::size_t length = std::min<std::size_t>(text.size(), FaultRecord::kTextBytes - 1);
    std::memcpy(segment->fault.text, text.data(), length);
    segment->fault.text[length] = '\0';
    // Pairs with the acquire load in fault(): who sees kSet reads the whole record.
    segment->fault_state.store(GroupSegment::kSet, std::memory_order_release);
  }
  for (int peer = 0; peer < static_cast<int>(segments_.size()); ++peer) notify(peer);
}

bool GroupSegments::has_fault() const noexcept {
  const GroupSegment* own = segments_[static_cast<std::size_t>(rank_)];
  return own->fault_state.load(std::memory_order_acquire) == GroupSegment::kSet;
}

std::optional<Error> GroupSegments::fault() const {
  if (!has_fault()) return std::nullopt;
  const FaultRecord& record = segments_[static_cast<std::size_t>(rank_)]->fault;
  return Error(static_cast<ErrorCode>(record.code), record.text);
}

}  // namespace ferry::memory
