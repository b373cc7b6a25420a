#pragma once

#include <atomic>
#include <cstdint>

namespace ferry::layout {

// Why a group died: the first fault that any rank met, written into every rank's segment.
struct FaultRecord {
  static constexpr int kTextBytes = 400;

  std::int32_t code = 0;       // ErrorCode
  std::int32_t reporter = 0;   // the rank that noticed
  char text[kTextBytes] = {};  // the whole message, NUL-terminated
};

// One rank's small segment, mapped by every peer of the node at group creation: its doorbell and
// its fault word. Being able to map it is what makes two ranks one node.
struct GroupSegment {
  static constexpr std::uint64_t kMagic = 0x3130504559525246;  // "FRRYEP01"

  std::uint64_t magic = kMagic;
  std::uint64_t nonce[2] = {};  // proves to a peer that it mapped the right object

  // The inbox: one counter for everything addressed to this rank, so that a waiter has one address.
  // A signaller publishes its data with a release store, then adds 1 (seq_cst), then wakes the
  // futex if a waiter is counted.
  alignas(64) std::atomic<std::uint32_t> inbox{0};
  std::atomic<std::uint32_t> num_waiters{0};

  enum FaultState : std::uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  alignas(64) std::atomic<std::uint32_t> fault_state{kNone};
  FaultRecord fault;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace ferry::layout
