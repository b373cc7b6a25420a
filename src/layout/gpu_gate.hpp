#pragma once

#include <cstdint>

#include "layout/control_block.hpp"

// What ranks on GPUs write into each other's arenas to keep in step. Plain words, shared by host and
// device code.
namespace ferry::layout {

// What one rank says to one peer when it reaches an operation. A rank writes words 1.. and then, with
// release at system scope, the sequence number; the peer polls that number in its own memory. A ring
// of two: a rank publishes operation n + 2 only after every peer has published n + 1, which those do
// after they have read n.
struct GateSlot {
  static constexpr int kWords = 24;
  static constexpr int kShapeWords = 8;
  static constexpr int kRing = 2;
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
  };

  std::uint64_t words[kWords];
};
static_assert(sizeof(OperationShape) == 8 * GateSlot::kShapeWords);

// One rank's gate memory at the start of its arena: written by its peers.
struct GpuGateLayout {
  std::int64_t slots = 0;  // GateSlot [kRing][R]
  // uint64 [R], 128 bytes apart: the last operation whose move the source has completed. Release at
  // system scope; pairs with the acquire of the closing wait.
  std::int64_t done = 0;
  std::int64_t counts = 0;  // int32 [kRing][R][E + R]: selections per expert, tokens per rank
  std::int64_t counts_pitch = 0;
  std::int64_t error_text = 0;  // char [kRing][kErrorTextBytes], this rank's own, read by peers

  static constexpr int kErrorTextBytes = 512;
  static constexpr int kDonePitch = 128;
};

}  // namespace ferry::layout
