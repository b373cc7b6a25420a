#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "boot/gather_round.hpp"
#include "boot/socket.hpp"
#include "boot/store.hpp"
#include "boot/store_messages.hpp"

namespace ferry::boot {

namespace {

// What the stores of one group share.
struct ThreadMeeting {
  explicit ThreadMeeting(int size)
      : round(size), states(static_cast<std::size_t>(size)), watchers(states.size()) {}

  struct Watcher {
    std::mutex mutex;  // held while on_change runs
    std::function<void(int, PeerState)> on_change;
    std::vector<bool> was_told;  // by peer: leave() and watch() may race to tell
  };

  std::mutex mutex;
  std::condition_variable changed;
  GatherRound round;
  std::shared_ptr<const Gathered> gathered;  // the last complete round
  std::optional<Failed> fault;
  int lost_rank = -1;  // the first
  std::vector<std::atomic<PeerState>> states;
  std::vector<Watcher> watchers;
};

class ThreadStore final : public Store {
 public:
  ThreadStore(int rank, std::shared_ptr<ThreadMeeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}
  ~ThreadStore() override { leave(); }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(meeting_->states.size());
  }

  [[nodiscard]] std::vector<std::string> all_gather(std::string_view what,
                                                    std::string_view bytes,
                                                    std::chrono::milliseconds timeout) override {
    ThreadMeeting& shared = *meeting_;
    std::unique_lock<std::mutex> lock(shared.mutex);
    if (shared.fault) throw_error(shared.fault->code, shared.fault->message);
    check_lost(what);
    const std::uint64_t number = shared.round.number();
    if (const auto failure = shared.round.add(rank_, {number, what, bytes})) {
      fail(failure->code, failure->message);
    }
    if (shared.round.is_complete()) {
      shared.gathered = std::make_shared<const Gathered>(shared.round.take());
      shared.changed.notify_all();
      return shared.gathered->parts;
    }
    const auto is_done = [&] { return shared.round.number() > number; };
    const bool is_settled = shared.changed.wait_until(lock, deadline_after(timeout), [&] {
      return is_done() || shared.fault || shared.lost_rank >= 0;
    });
    // Nobody begins the next round's result before this rank has taken part in it, so the last
    // complete round is this one.
    if (is_done()) {
      const std::shared_ptr<const Gathered> gathered = shared.gathered;
      lock.unlock();
      return gathered->parts;
    }
    if (shared.fault) throw_error(shared.fault->code, shared.fault->message);
    if (is_settled) check_lost(what);
    fail(ErrorCode::kTimeout, late_message(rank_, what, timeout, shared.round.missing()));
  }

  [[nodiscard]] std::vector<UniqueFd> exchange_fds(std::string_view what,
                                                   int fd,
                                                   std::chrono::milliseconds timeout) override {
    const std::vector<std::string> numbers = all_gather(what, std::to_string(fd), timeout);
    std::vector<UniqueFd> descriptors;
    int error = 0;
    for (const std::string& number : numbers) {
      descriptors.emplace_back(::fcntl(std::stoi(number), F_DUPFD_CLOEXEC, 0));
      if (!descriptors.back().is_open()) error = errno;
    }
    // The offered descriptors stay open until every rank has its duplicates.
    (void)all_gather(what, {}, timeout);
    FERRY_CHECK(error == 0, ErrorCode::kNoResource,
                "rank {} cannot duplicate the descriptors of its peers at step '{}': {}", rank_,
                what, errno_text(error));
    return descriptors;
  }

  [[nodiscard]] PeerState peer_state(int peer) const noexcept override {
    if (peer < 0 || peer >= size() || peer == rank_) return PeerState::kAlive;
    return meeting_->states[static_cast<std::size_t>(peer)].load();
  }

  void watch(std::function<void(int peer, PeerState state)> on_change) override {
    ThreadMeeting::Watcher& watcher = meeting_->watchers[static_cast<std::size_t>(rank_)];
    const std::lock_guard<std::mutex> guard(watcher.mutex);
    watcher.on_change = std::move(on_change);
    watcher.was_told.assign(meeting_->states.size(), false);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_) tell(watcher, peer);
    }
  }

  void leave() noexcept override {
    ThreadMeeting& shared = *meeting_;
    {
      const std::lock_guard<std::mutex> guard(shared.mutex);
      std::atomic<PeerState>& state = shared.states[static_cast<std::size_t>(rank_)];
      if (state.load() != PeerState::kAlive) return;
      state.store(PeerState::kLeft);
      if (shared.lost_rank < 0) shared.lost_rank = rank_;
      shared.changed.notify_all();
    }
    for (std::size_t peer = 0; peer < shared.watchers.size(); ++peer) {
      if (peer == static_cast<std::size_t>(rank_)) continue;
      ThreadMeeting::Watcher& watcher = shared.watchers[peer];
      const std::lock_guard<std::mutex> guard(watcher.mutex);
      tell(watcher, rank_);
    }
  }

 private:
  // With the watcher's mutex held.
  void tell(ThreadMeeting::Watcher& watcher, int peer) const {
    const auto index = static_cast<std::size_t>(peer);
    const PeerState state = meeting_->states[index].load();
    if (!watcher.on_change || state == PeerState::kAlive || watcher.was_told[index]) return;
    watcher.was_told[index] = true;
    watcher.on_change(peer, state);
  }

  // With the mutex held.
  void check_lost(std::string_view what) const {
    const int lost = meeting_->lost_rank;
    if (lost < 0) return;
    FERRY_CHECK(lost != rank_, ErrorCode::kInvalidArgument,
                "rank {} has left the group and cannot take part in step '{}'", rank_, what);
    throw_error(ErrorCode::kPeerLost, lost_message(rank_, what, lost, PeerState::kLeft));
  }

  [[noreturn]] void fail(ErrorCode code, const std::string& message) {
    meeting_->fault = Failed{meeting_->round.number(), code, message};
    meeting_->changed.notify_all();
    throw_error(code, message);
  }

  const int rank_;
  const std::shared_ptr<ThreadMeeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Store>> make_thread_stores(int size) {
  FERRY_CHECK(size >= 1 && size <= kMaxRanks, ErrorCode::kInvalidArgument,
              "group size {} is not from 1 to {}", size, kMaxRanks);
  const auto meeting = std::make_shared<ThreadMeeting>(size);
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < size; ++rank) {
    stores.push_back(std::make_unique<ThreadStore>(rank, meeting));
  }
  return stores;
}

}  // namespace ferry::boot
