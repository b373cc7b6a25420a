#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "boot/store.hpp"
#include "engine/operation.hpp"
#include "layout/control_block.hpp"
#include "memory/arena.hpp"
#include "memory/group_segments.hpp"

namespace ferry::cpu {

using engine::Deadlines;

// The words of a peer's control block that an operation waits for.
enum class Word {
  kPublished,           // its header: it has reached the operation
  kMoved,               // its rows are in our memory
  kAcknowledged,        // it has finished reading our memory
  kLlDispatchConsumed,  // its low-latency region is free again
  kLlCombineConsumed,
};

// The one sequence of operations of an exchange on this rank, and every wait in it. Each wait ends:
// with the peers' words, with a fault of the group, or with a deadline. All errors thrown here but
// those of headers are sticky faults of the group.
class Gate {
 public:
  Gate(boot::Store& store,
       memory::GroupSegments& segments,
       memory::Arena& arena,
       const Deadlines& deadlines);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int num_ranks() const noexcept { return num_ranks_; }

  // Throws the group's fault; a peer that has left makes one.
  void check_alive();

  [[nodiscard]] bool has_fault() const noexcept { return segments_.has_fault(); }

  // Gives the next operation its number and this rank's header, and wakes the peers. Waits first
  // until everybody has reached the operation two before it (the ring of headers).
  std::uint64_t publish(const layout::OperationShape& shape, const layout::OperationWords& words);

  // The number that the next publish() gives.
  [[nodiscard]] std::uint64_t next_sequence() const noexcept { return sequence_ + 1; }

  // Waits until every rank has reached `sequence`. Throws kInvalidArgument naming both ranks'
  // operations where they differ (sticky), or the invalid input that the lowest rank found (not
  // sticky).
  void pass(std::uint64_t sequence);

  // Waits until `word` of every peer in `peers` is at least `target`, for operation `sequence`.
  void wait(Word word, std::uint64_t target, std::uint64_t sequence, const std::vector<int>& peers);
  void wait_all(Word word, std::uint64_t target, std::uint64_t sequence) {
    wait(word, target, sequence, all_peers_);
  }

  // Stores a word of this rank (release, rows fenced before) and wakes the peers.
  void announce(Word word, std::uint64_t value);
  // Tells waiters that this rank still moves; any thread of the rank.
  void tick_progress() noexcept;

  // The words that `peer` published with `sequence`; valid until two further operations.
  [[nodiscard]] const layout::OperationWords& words_of(int peer, std::uint64_t sequence) const;
  [[nodiscard]] const layout::ControlBlock& control_of(int peer) const;

  // The arrival deadline of the operation at hand; zero restores the configured one.
  void set_arrival_timeout(std::chrono::milliseconds timeout) noexcept;

  [[nodiscard]] std::int64_t wait_ns() const noexcept { return wait_ns_; }
  [[nodiscard]] const std::vector<std::int64_t>& wait_ns_by_peer() const noexcept {
    return wait_ns_by_peer_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] layout::ControlBlock& own_control() noexcept;
  [[nodiscard]] std::uint64_t load(Word word, int peer, std::uint64_t target) const noexcept;
  [[nodiscard]] bool has_reached(int peer, std::uint64_t sequence) const noexcept;
  [[noreturn]] void throw_fault(Word word, std::uint64_t sequence, int peer);
  void check_deadlines(Word word,
                       std::uint64_t target,
                       std::uint64_t sequence,
                       const std::vector<int>& missing,
                       Clock::time_point start);
  void advance(std::uint64_t sequence);
  void check_agreement(std::uint64_t sequence);

  boot::Store& store_;
  memory::GroupSegments& segments_;
  memory::Arena& arena_;
  Deadlines deadlines_;
  std::chrono::milliseconds arrival_timeout_;
  int rank_;
  int num_ranks_;
  std::vector<int> all_peers_;  // without this rank
  std::uint64_t sequence_ = 0;
  std::uint64_t passed_ = 0;  // everybody has published up to here
  // Operations that all ranks refuse, until pass() says so: headers must be compared before their
  // ring slots are reused, which for outstanding operations is earlier than pass().
  std::map<std::uint64_t, Error> refused_;
  layout::Operation operations_[layout::ControlBlock::kRing] = {};
  std::int64_t wait_ns_ = 0;
  std::vector<std::int64_t> wait_ns_by_peer_;
  struct Progress {
    std::uint64_t value = 0;
    Clock::time_point changed;
  };
  std::vector<Progress> progress_;  // as last seen in the wait at hand
  bool has_warned_ = false;
};

}  // namespace ferry::cpu
