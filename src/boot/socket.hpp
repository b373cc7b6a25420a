#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/unique_fd.hpp"
#include "boot/address.hpp"

namespace ferry::boot {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Any duration, however long.
[[nodiscard]] Deadline deadline_after(std::chrono::milliseconds duration);
// For poll(): rounded up, so that a wait of this length ends at or after the deadline.
[[nodiscard]] int milliseconds_until(Deadline deadline);

// All sockets here are non-blocking and close on exec.

// Rank 0's listening socket. `interface` (a network interface or a local address) replaces the host
// of a TCP address. Throws kSystem.
[[nodiscard]] UniqueFd listen_at(const Address& address, const std::string& interface);

struct Connected {
  UniqueFd fd;  // not open: `cause` says why, in the system's words
  std::string cause;
  bool is_refused = false;  // the host is there, nobody listens
};
// Waits at most until `deadline`, name resolution excepted.
[[nodiscard]] Connected try_connect(const Address& address, Deadline deadline);

// An abstract Unix socket; `type` is SOCK_STREAM or SOCK_SEQPACKET. Not open on failure: see errno.
[[nodiscard]] UniqueFd listen_abstract(std::string_view name, int type);
[[nodiscard]] UniqueFd connect_abstract(std::string_view name, int type);

// Two ends of one stream.
[[nodiscard]] std::pair<UniqueFd, UniqueFd> make_socket_pair();

// The effective uid of the process at the other end of a Unix socket when it connected or listened.
[[nodiscard]] std::optional<uid_t> peer_uid(int fd);

// Waits until `fd` is ready for `events`, at most until `deadline`; false then.
[[nodiscard]] bool wait_ready(int fd, short events, Deadline deadline);

// Ends a poll() from another thread.
class Wakeup {
 public:
  Wakeup();
  void wake() noexcept;
  void drain() noexcept;
  [[nodiscard]] int fd() const noexcept { return event_.get(); }

 private:
  UniqueFd event_;
};

// A thread that takes no signals: handlers of the program run on its own threads.
[[nodiscard]] std::thread start_thread(std::function<void()> body);

}  // namespace ferry::boot
