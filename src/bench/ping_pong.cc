#include "bench/ping_pong.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "cpu/copy.hpp"
#include "memory/shared_mapping.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPage = 4096;
constexpr std::chrono::seconds kDeadline{20};

// Start of the shared memory; payloads follow on their own pages.
struct Flags {
  alignas(64) std::atomic<std::uint64_t> ping;
  alignas(64) std::atomic<std::uint64_t> pong;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Both players wait as the CPU engine does: some pauses, then yields.
void wait_for(const std::atomic<std::uint64_t>& flag, std::uint64_t value, const Group& group) {
  constexpr int kPauses = 1000;
  const Clock::time_point deadline = Clock::now() + kDeadline;
  for (std::int64_t polls = 0;; ++polls) {
    // Pairs with the release store in Player::tell(): the payload written before it is there.
    if (flag.load(std::memory_order_acquire) >= value) return;
    if (polls < kPauses) {
      relax();
      continue;
    }
    ::sched_yield();
    if (polls % 1024 != 0) continue;
    group.check();
    FERRY_CHECK(Clock::now() < deadline, ErrorCode::kTimeout,
                "rank {} waited {} s for rank {} in the ping-pong", group.rank(), kDeadline.count(),
                1 - group.rank());
  }
}

class Player {
 public:
  Player(const Group& group, std::byte* shared, std::int64_t own_place, std::int64_t own_bytes)
      : group_(group),
        flags_(reinterpret_cast<Flags*>(shared)),
        target_(shared + own_place),
        payload_(static_cast<std::size_t>(own_bytes), std::byte{1}) {}

  // One round per iteration; returns the median microseconds (rank 0).
  double play(int iters, bool has_payload) {
    std::vector<double> times;
    for (int i = 0; i < iters; ++i) {
      ++turn_;
      const Clock::time_point start = Clock::now();
      if (group_.rank() == 0) {
        tell(flags_->ping, has_payload);
        wait_for(flags_->pong, turn_, group_);
      } else {
        wait_for(flags_->ping, turn_, group_);
        tell(flags_->pong, has_payload);
      }
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

 private:
  void tell(std::atomic<std::uint64_t>& flag, bool has_payload) {
    if (has_payload) {
      cpu::stream_copy(target_, payload_.data(), payload_.size());
      cpu::stream_fence();
    }
    flag.store(turn_, std::memory_order_release);
  }

  const Group& group_;
  Flags* flags_;
  std::byte* target_;
  std::vector<std::byte> payload_;
  std::uint64_t turn_ = 0;
};

// What rank 0 tells the others: its payloads, which both players carry, and where its memory is.
// Descriptors do not travel over a Group; on one host another process's can be opened by its path.
struct Offer {
  std::int64_t ping_bytes = 0;
  std::int64_t pong_bytes = 0;
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
};

Offer gather_offer(const Group& group, const Offer& own) {
  const auto offers = group.all_gather(std::as_bytes(std::span(&own, 1)));
  Offer first;
  FERRY_CHECK_INTERNAL(offers[0].size() == sizeof(first),
                       "rank 0's ping-pong offer has another size");
  std::memcpy(&first, offers[0].data(), sizeof(first));
  return first;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

PingPong measure_ping_pong(const Group& group,
                           std::int64_t ping_bytes,
                           std::int64_t pong_bytes,
                           int iters) {
  PingPong result;
  if (group.size() < 2) {
    result.reason = "there is one rank";
    return result;
  }
  const auto pages = [](std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  UniqueFd fd;
  if (group.rank() == 0)
    fd = memory::make_shared_object("ferry-ping-pong",
                                    kPage + pages(ping_bytes) + pages(pong_bytes));
  const Offer offer = gather_offer(group, {ping_bytes, pong_bytes, ::getpid(), fd.get()});
  result.ping_bytes = offer.ping_bytes;
  result.pong_bytes = offer.pong_bytes;
  const std::int64_t total = kPage + pages(offer.ping_bytes) + pages(offer.pong_bytes);
  std::string problem;
  if (group.rank() == 1) {
    const std::string path = fmt::format("/proc/{}/fd/{}", offer.process, offer.descriptor);
    fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.is_open())
      problem = fmt::format("rank 1 cannot open rank 0's memory: {}", errno_text(errno));
  }
  const auto problems = group.all_gather(bytes_of(problem));
  if (!problems[1].empty()) {
    result.reason.assign(reinterpret_cast<const char*>(problems[1].data()), problems[1].size());
    return result;
  }
  if (group.rank() <= 1) {
    const auto shared = memory::SharedMapping::open(fd.get(), total);
    const bool is_first = group.rank() == 0;
    Player player(group, shared->base(), is_first ? kPage : kPage + pages(offer.ping_bytes),
                  is_first ? offer.ping_bytes : offer.pong_bytes);
    player.play(iters, true);  // touches every page
    result.flag_us = player.play(iters, false);
    result.payload_us = player.play(iters, true);
    result.is_measured = true;
  }
  group.barrier();
  return result;
}

}  // namespace ferry::bench
