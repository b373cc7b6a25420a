#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace ferry::boot {

// How a peer stands, as its connection shows it. Only grows: alive -> left or dead.
enum class PeerState : std::uint8_t {
  kAlive = 0,
  kLeft = 1,  // said goodbye
  kDead = 2,  // its connection closed without one
};

// How the ranks of one group meet and keep an eye on each other: the control path. One object per
// rank. Collectives are called by one thread at a time, in the same order on every rank; the other
// functions from any thread.
class Store {
 public:
  virtual ~Store() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  // Collective. Every rank contributes bytes and receives all in rank order. `what` names the step
  // in errors. Throws kTimeout naming the ranks that are missing, kPeerLost naming the rank that
  // died or left.
  [[nodiscard]] virtual std::vector<std::string> all_gather(std::string_view what,
                                                            std::string_view bytes,
                                                            std::chrono::milliseconds timeout) = 0;

  // Collective. Every rank offers one descriptor (kept by the caller) and receives a duplicate of
  // every rank's, its own included; not open where that rank is on another host. Over Unix sockets
  // only, the peer's uid checked. Same errors.
  [[nodiscard]] virtual std::vector<UniqueFd> exchange_fds(std::string_view what,
                                                           int fd,
                                                           std::chrono::milliseconds timeout) = 0;

  [[nodiscard]] virtual PeerState peer_state(int peer) const noexcept = 0;

  // `on_change(peer, state)` runs on a watcher thread within 2 s of a peer's death or departure,
  // once per peer; for changes that happened before, from within watch(). It must not block or
  // throw. Passing nullptr stops the watching: no call runs after it returns.
  virtual void watch(std::function<void(int peer, PeerState state)> on_change) = 0;

  // Says goodbye and closes. Idempotent, never blocks on a peer.
  virtual void leave() noexcept = 0;
};

// How one rank finds the others.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::string address;       // "unix:NAME" or "HOST:PORT"
  std::string interface;     // network interface or local address to bind; empty: that of HOST
  std::string secret;        // proof over TCP
  bool is_insecure = false;  // TCP without a secret, on purpose
  std::chrono::milliseconds timeout{300000};
  std::string launcher;  // "torchrun", "Open MPI", "Slurm", "FERRY_*": for messages
};

// Joins. Blocks until all ranks have joined; rank 0 serves. Throws kInvalidArgument (address
// malformed), kUnavailable (no secret over TCP), kSystem (port taken, unreachable), kTimeout (ranks
// missing, named).
[[nodiscard]] std::unique_ptr<Store> open_store(const Meeting& meeting);

// Stores for ranks that are threads of this process.
[[nodiscard]] std::vector<std::unique_ptr<Store>> make_thread_stores(int size);

}  // namespace ferry::boot
