#pragma once

#include <cstdint>

#include "layout/control_block.hpp"

// What ranks on GPUs write into each other's arenas to keep in step. Plain words, shared by host
// and device code.
namespace ferry::layout {

// What one rank says to its peers when it reaches an operation.
struct GateSlot {
  static constexpr int kWords = 24;
  static constexpr int kShapeWords = 8;
  enum Word : int {
    kSequence = 0,
    kShape = 1,        // an OperationShape: what all ranks must agree on
    kErrorCode = 9,    // an argument is unusable on this rank; its text lies in the rank's arena
    kTopkFault = 10,   // 0, or 1 + token * 64 + k * 2 + is_duplicate of the first invalid selection
    kTopkExpert = 11,  // the id that was found there
    // Grants: arena offsets that peers may use under this operation.
    kRowsOffset = 12,
    kRowsPitch = 13,
    kScalesOffset = 14,
    kTopkOffset = 15,
    kWeightsOffset = 16,
    kSourceOffset = 17,
    kCopyOffset = 18,
  };

  std::uint64_t words[kWords];
};
// How it lies in a peer's arena: each word in two halves that carry the sequence number, so that a
// reader sees from every half alone whether it has arrived, in one trip and in any order. A ring of
// two: a rank says n + 2 only after every peer has said n + 1, which those do after they have read
// n.
struct alignas(16) HeardSlot {
  static constexpr int kRing = 2;
  struct alignas(16) Word {
    std::uint64_t low;   // tag of the sequence number << 32 | the lower half
    std::uint64_t high;  // likewise the upper half
  };

  Word words[GateSlot::kWords];
};
static_assert(sizeof(OperationShape) == 8 * GateSlot::kShapeWords);

// One rank's gate memory at the start of its arena: written by its peers.
struct GpuGateLayout {
  std::int64_t slots = 0;  // HeardSlot [kRing][R]
  // uint64 [R][kDoneWords]: the last operation whose move the source has completed, in as many
  // words as it has blocks that can say so by themselves. Release at system scope; pairs with the
  // acquire of the closing wait.
  std::int64_t done = 0;
  std::int64_t counts = 0;  // int32 [kRing][R][E + R]: selections per expert, tokens per rank
  std::int64_t counts_pitch = 0;
  std::int64_t error_text = 0;  // char [kRing][kErrorTextBytes], this rank's own, read by peers

  static constexpr int kErrorTextBytes = 512;
  static constexpr int kDoneWords = 32;
};

}  // namespace ferry::layout
