#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace ferry::layout {

// What an operation of the sequence is; part of every header.
enum class Operation : std::int32_t {
  kNone = 0,
  kRoute = 1,
  kDispatch = 2,
  kCombine = 3,
  kCombineChunk = 4,
  kCombineWeights = 5,
  kDispatchChunk = 6,
  kSetOwnerMap = 7,
};
[[nodiscard]] constexpr const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::kNone: return "nothing";
    case Operation::kRoute: return "route";
    case Operation::kDispatch: return "dispatch";
    case Operation::kCombine: return "combine";
    case Operation::kCombineChunk: return "combine (further chunk)";
    case Operation::kCombineWeights: return "combine_weights";
    case Operation::kDispatchChunk: return "dispatch (further chunk)";
    case Operation::kSetOwnerMap: return "set_owner_map";
  }
  return "unknown operation";
}

// What all ranks must agree on for one operation. Compared field by field at the gate.
struct OperationShape {
  std::int32_t operation = 0;  // Operation
  std::int32_t layout = 0;
  std::int32_t dtype = 0;
  std::int32_t scale_dtype = 0;
  std::int32_t quantize = 0;
  std::int32_t has_weights = 0;
  std::int32_t topk_idx_bytes = 0;  // 4 or 8
  std::int32_t form = 0;            // CombineForm
  std::uint64_t route = 0;          // sequence number of the route
  std::int64_t row_bytes = 0;
  std::int64_t scale_bytes = 0;  // per row
  std::uint64_t digest = 0;      // of anything else that must agree (owner map)
};

// What the rank alone says.
struct OperationWords {
  static constexpr int kTextBytes = 360;

  std::int64_t num_tokens = 0;
  std::int32_t is_split = 0;
  std::int32_t is_staged = 0;  // dispatch: rows go through a window of staging
  // Arena offsets that peers may use under this header (grants), or -1.
  std::int64_t rows_offset = -1;  // dispatch: delivery rows; combine pull: y; chunk: staging
  std::int64_t scales_offset = -1;
  std::int64_t topk_offset = -1;
  std::int64_t weights_offset = -1;  // dispatch: delivered weights; combine: row weights
  std::int64_t source_offset = -1;   // row_source
  std::int64_t rows_pitch = 0;       // bytes between rows behind rows_offset
  // An invalid input found on this rank: every rank throws it, nothing moves, the group lives.
  std::int32_t error_code = 0;
  char error_text[kTextBytes] = {};
};

// A header is published by its owner and read by all peers. A ring of four: an operation is
// published only after everybody has published the one two before it, so nobody can still be
// reading the header that is replaced.
struct OperationHeader {
  // Stored last, release; pairs with the acquire load in cpu::Gate: who reads this number also
  // reads everything below, and the counts of a route.
  std::atomic<std::uint64_t> sequence{0};
  OperationShape shape;
  OperationWords words;
};

// One rank's control block at the start of its arena. Every word has one writer, its owner; numbers
// only grow.
struct ControlBlock {
  static constexpr int kRing = 4;

  OperationHeader headers[kRing];

  // The last operation whose rows this rank has written into its peers' memory. Release, after the
  // streaming stores are fenced; pairs with the acquire load of the receiver's closing gate.
  alignas(64) std::atomic<std::uint64_t> moved{0};
  // The last operation for which this rank has finished reading its peers' memory.
  alignas(64) std::atomic<std::uint64_t> acknowledged{0};
  // Low-latency regions that this rank has emptied again: the grants of the next but one.
  alignas(64) std::atomic<std::uint64_t> ll_dispatches_consumed{0};
  std::atomic<std::uint64_t> ll_combines_consumed{0};
  // Grows while this rank moves rows: tells a slow rank from a stopped one.
  alignas(64) std::atomic<std::uint64_t> progress{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace ferry::layout
