#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ferry/api.hpp"

namespace ferry {

namespace detail {
class GroupImpl;
}

// How ranks meet when the caller says it instead of the environment. Zero durations take the value
// of the environment table (FERRY_TIMEOUT_MS and its neighbours; see docs/env.md).
struct GroupConfig {
  int rank = 0;
  int size = 1;
  // "unix:NAME" (one host, no TCP port; NAME is any text the ranks share) or "HOST:PORT".
  std::string address{};
  // Proof of membership over TCP; empty: FERRY_SECRET_FILE or FERRY_SECRET.
  std::string secret{};
  // Splits the ranks of one host into this many pretended nodes; 0 and 1 pretend nothing.
  int num_pretended_nodes = 0;
  std::chrono::milliseconds meeting_timeout{0};   // until all ranks have joined
  std::chrono::milliseconds arrival_timeout{0};   // a rank that has not reached an operation
  std::chrono::milliseconds progress_timeout{0};  // a rank that reached it and stopped moving
};

// The ranks that exchange tokens. A handle: copies share one membership, which ends when the last
// copy and the last Exchange on it are gone, or with leave(). Thread safety: one thread per rank;
// distinct groups (thread ranks) are independent.
class FERRY_API Group {
 public:
  // Joins the group that the launcher describes (torchrun, mpirun, srun, or FERRY_RANK, FERRY_SIZE,
  // FERRY_ADDRESS). Blocks until every rank has joined or the meeting deadline passes.
  // Throws kInvalidArgument naming the variable for a malformed environment, kTimeout naming the
  // ranks that did not come, kUnavailable where ranks on several hosts share no secret.
  [[nodiscard]] static Group from_env();

  // Whether a launcher has described a rank to this process: from_env() has something to read.
  [[nodiscard]] static bool is_launched();

  // The same as from_env() from an explicit description.
  [[nodiscard]] static Group open(const GroupConfig& config);

  // One member: every operation is local. Never blocks.
  [[nodiscard]] static Group self();

  // Runs `body(group)` once per rank, each on a thread of its own, and joins them all. The
  // exception that was thrown first is rethrown after every thread has ended. For tests and for
  // programs that drive several ranks from one process. config.rank, .size and .address are
  // ignored.
  static void run_threads(int num_ranks,
                          const std::function<void(Group)>& body,
                          const GroupConfig& config = {});

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  // Nodes are numbered by their lowest rank; ranks of one node can map each other's memory.
  [[nodiscard]] int num_nodes() const noexcept;
  [[nodiscard]] int node() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int node_of(int rank) const;

  // Collective, blocking: every rank contributes `bytes` (any length) and receives those of all
  // ranks in rank order. For set-up, not for the data path.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(
      std::span<const std::byte> bytes) const;
  // Collective, blocking.
  void barrier() const;

  // Throws the group's sticky fault (kPeerLost, kTimeout), if there is one. Does not block.
  void check() const;

  // Leaves the group: peers that still wait for this rank get kPeerLost. Idempotent, never blocks
  // on a peer, never throws.
  void leave() noexcept;

  explicit Group(std::shared_ptr<detail::GroupImpl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const std::shared_ptr<detail::GroupImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<detail::GroupImpl> impl_;
};

}  // namespace ferry
