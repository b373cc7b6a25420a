#pragma once

#include <cstdint>

#include "layout/gpu_gate.hpp"

// What one rank's kernels share with each other and with its host. Plain data, for host and device
// code.
namespace ferry::cuda {

inline constexpr int kMostPeers = 128;  // ranks of one node
inline constexpr int kOperationSlots = 8;

// In device memory of this rank alone.
struct DeviceState {
  std::uint64_t sequence;  // of the last operation whose gate has passed
  // By operation slot: the sequence number that its gate drew. A graph's replays draw new ones.
  std::uint64_t sequence_of[kOperationSlots];
  std::uint64_t last_staged;  // the last combine whose y lay in the staging area
  std::uint64_t wait_ns[kMostPeers];
  std::uint32_t is_aborted;  // a fault: nothing is written any more
  std::uint32_t is_refused;  // the operation at hand moves nothing: invalid input on some rank
  std::uint32_t next_piece;  // of the move at hand, taken by its warps
  std::uint32_t reserved;
};

// Why the first gate gave up.
struct GateFault {
  enum Kind : std::int32_t { kNone = 0, kLate = 1, kStopped = 2, kDiffers = 3 };

  std::int32_t kind;
  std::int32_t peer;
  std::int32_t operation;       // layout::Operation of this rank
  std::int32_t peer_operation;  // kDiffers
  std::uint64_t sequence;       // expected
  std::uint64_t seen;
  std::uint64_t waited_ns;
};

// Why all ranks refused an operation: the lowest rank with an unusable argument, or the lowest
// whose shape differs from rank 0's.
struct Refusal {
  std::int32_t rank;
  std::int32_t code;  // ErrorCode; 0: shapes differ
  std::uint64_t sequence;
  std::uint64_t reference[layout::GateSlot::kShapeWords];  // rank 0's OperationShape
  std::uint64_t other[layout::GateSlot::kShapeWords];
  char text[layout::GpuGateLayout::kErrorTextBytes];
};

// In pinned host memory that the device addresses. Every word has one writer.
struct HostMailbox {
  std::uint32_t abort;        // host: a fault of the group
  std::uint32_t has_fault;    // device, stored after `fault` (release)
  std::uint32_t num_refused;  // device, stored after `refusal`: operations but routes
  // Device: 1 while this rank's gate has waited noticeably for the peer.
  std::uint32_t waits_for[kMostPeers];
  std::uint64_t wait_ns[kMostPeers];  // device: time waited for the peer
  GateFault fault;
  Refusal refusal;
};

// What a route operation found, in pinned host memory of the route.
struct RouteAnswer {
  std::uint64_t ticket;      // of the route, stored last (release): the answer is complete
  std::int32_t fault_rank;   // the lowest rank with an invalid selection, or -1
  std::int32_t is_refused;   // `refusal` says why
  std::uint64_t topk_fault;  // GateSlot::kTopkFault of fault_rank
  std::int64_t topk_expert;
  Refusal refusal;
  // int32 [R][E + R] counts follow.
};

// Where a kernel finds everything; passed by value.
struct ExchangeView {
  const std::uint64_t* peer_base;  // [R], where each rank's arena is mapped here
  std::uint64_t arena;             // this rank's
  layout::GpuGateLayout gate;
  DeviceState* state;
  HostMailbox* mailbox;
  std::uint64_t arrival_ns;  // deadlines
  std::uint64_t progress_ns;
  int rank;
  int num_ranks;
  int num_experts;
  int top_k;
};

// One row that a token sends.
struct alignas(8) RowEntry {
  std::uint32_t row;  // at the destination
  std::uint16_t rank;
  // kByRank: position among the token's destinations. Else: place in the token's list of its first
  // row for the same rank, from which the receiver may copy this one.
  std::uint8_t slot;
  std::uint8_t k;  // kByRank: highest k that the row serves; else k
};

// A route in device memory. Counts of the delivery are int64, in the order of the delivery's counts
// tensor: num_rows [1], counts [E_l], aligned counts [E_l], offsets [E_l + 1], sources [R + 1].
struct RouteView {
  std::int32_t* topk;           // [T, K]
  std::uint32_t* home;          // [T, K], owner << 16 | local id, or kNowhere
  RowEntry* entries;            // [T, K], a token's rows first, in the order of the sum
  std::int32_t* num_entries;    // [T]
  std::int32_t* chunk_counts;   // [chunks][E + R], then their prefix sums
  std::int64_t* bases;          // [max(E, R)]: where this rank's first row lands
  std::int64_t* counts;         // as above
  std::uint64_t* topk_fault;    // [1]
  std::uint32_t* has_error;     // [1]: no operation along this route moves anything
  RouteAnswer* answer;          // pinned
  const std::uint32_t* owners;  // [E], owner << 16 | local id
  std::int64_t num_tokens;
  std::int64_t max_tokens;
  std::int64_t row_cap;
  std::int64_t expert_alignment;
  std::uint64_t ticket;
  int layout;  // ferry::Layout
  int num_local;
  int is_overflow_error;
  int accepts_duplicates;
  int is_by_highest_k;  // the order of a token's entries

  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;
  static constexpr int kChunkTokens = 64;
};

}  // namespace ferry::cuda
