#pragma once

#include <cstdint>

#include "ferry/exchange.hpp"
#include "layout/gpu_gate.hpp"

namespace ferry::layout {

// What the arena's layout depends on; the same on every rank.
struct ArenaShape {
  int num_ranks = 0;
  int num_experts = 0;
  int top_k = 0;
  std::int64_t max_tokens = 0;
  std::int64_t max_row_bytes = 0;      // of dispatched rows
  std::int64_t max_sum_row_bytes = 0;  // of combined rows: fp32 at the widest
  std::int64_t max_scale_bytes = 0;    // per row
  std::int64_t delivery_rows = 0;      // worst case of one delivery
  int slots_per_token = 0;             // push combine
  std::int64_t memory_limit = 0;       // staging; 0: none
  std::int64_t heap_bytes = 0;         // for allocate()
  bool is_low_latency = false;         // with fixed regions
  bool is_gpu = false;                 // physical memory: gates in it, staging for one y
};

// One delivery: rows and what stands beside them, offsets from the start of the slot.
struct DeliverySlot {
  std::int64_t rows = 0;
  std::int64_t scales = 0;
  std::int64_t scales_scratch = 0;  // GPU arenas: row-major scales on their way to column-major
  std::int64_t topk_idx = 0;
  std::int64_t weights = 0;
  std::int64_t row_source = 0;
  std::int64_t row_expert = 0;
  std::int64_t copy_of = 0;  // GPU arenas: int32, the row that the receiver copies here, or -1
  // int64: num_rows [1], expert counts [E], aligned ones [E], expert offsets [E+1], sources [R+1].
  std::int64_t counts = 0;
  std::int64_t bytes = 0;
};

// One record of a low-latency region, offsets from its start; row and scales first.
struct LowLatencyRecord {
  std::int64_t row = 0;
  std::int64_t scales = 0;
  std::int64_t topk_idx = 0;  // int32 [K], local ids or -1
  std::int64_t weights = 0;   // float32 [K]
  std::int64_t source = 0;    // int32 token, int32 slot
  std::int64_t bytes = 0;     // pitch
};

// Every range of one arena, in bytes from its start. All ranges are address space: on the CPU pages
// are reserved when a range is used.
struct ArenaLayout {
  static constexpr int kDeliveries = 3;  // the ring
  // One per outstanding operation.
  static constexpr int kStagingAreas = 3;
  static constexpr int kLowLatencyBuffers = 3;

  std::int64_t control = 0;       // ControlBlock
  std::int64_t counts = 0;        // int32 [kRing][E + R]
  std::int64_t counts_pitch = 0;  // bytes of one [E + R]
  std::int64_t deliveries[kDeliveries] = {};
  DeliverySlot delivery;
  std::int64_t staging[kStagingAreas] = {};
  std::int64_t staging_bytes = 0;    // of one area; GPU: of the one area, for a y outside the arena
  std::int64_t weights_scratch = 0;  // float32, row weights on their way back
  std::int64_t weights_scratch_bytes = 0;
  std::int64_t ll_dispatch = 0;        // [kLowLatencyBuffers][R][max_tokens] records
  std::int64_t ll_dispatch_bytes = 0;  // of one buffer
  LowLatencyRecord ll_record;
  std::int64_t ll_combine_bytes = 0;  // of the part of a staging area that is granted for good
  GpuGateLayout gpu_gate;             // GPU arenas only
  std::int64_t heap = 0;
  std::int64_t heap_bytes = 0;
  std::int64_t total_bytes = 0;
};

// Throws kInvalidArgument when the sizes overflow 64 bits.
[[nodiscard]] ArenaLayout make_arena_layout(const ArenaShape& shape);

// Bytes of one staged row of push combine: the row and, where weights travel back, its floats.
[[nodiscard]] std::int64_t staging_pitch(std::int64_t row_bytes, int num_row_weights);

}  // namespace ferry::layout
