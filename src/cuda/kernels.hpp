#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device_state.hpp"

// Launchers of the engine's kernels, for host code. Everything is passed by value; nothing blocks.
namespace ferry::cuda {

// --- gates (gate.cu) ---------------------------------------------------------------------------

struct OpenGate {
  layout::GateSlot slot;             // words to say
  const std::uint32_t* route_error;  // of the route that the operation follows, or null
  int operation_slot;
  int is_staged;  // this rank's y (or its weights) lies in the staging area
};
cudaError_t launch_open_gate(const ExchangeView& exchange,
                             const OpenGate& gate,
                             cudaStream_t stream);

// Says that this rank's move of an operation is complete, and (or) waits until every peer has said
// so.
struct CloseGate {
  int operation_slot;
  int announces;
  int waits;
  std::int32_t operation;  // layout::Operation, for messages
};
cudaError_t launch_close_gate(const ExchangeView& exchange,
                              const CloseGate& gate,
                              cudaStream_t stream);

// Waits until every peer has completed the last combine that read this rank's staging area.
cudaError_t launch_staging_wait(const ExchangeView& exchange, cudaStream_t stream);

// --- routes (route.cu) -------------------------------------------------------------------------

struct TopkInput {
  const void* ids;
  std::int64_t row_stride;  // elements
  int is_int64;
};
// Counts, meets the other ranks, plans. Three kernels.
cudaError_t launch_route(const ExchangeView& exchange,
                         const RouteView& route,
                         const TopkInput& topk,
                         const OpenGate& gate,
                         cudaStream_t stream);

// --- dispatch (dispatch_send.cu, dispatch_recv.cu) ---------------------------------------------

// What only the receiver writes: experts of rows, ids of unused rows, gaps. No rows: nothing.
struct CompleteView {
  std::byte* rows;
  std::byte* scales;
  std::byte* topk_idx;
  std::byte* weights;
  std::int32_t* row_expert;
  std::int64_t num_output_rows;
  std::int64_t row_bytes;
  std::int64_t scale_bytes;
  std::int64_t weight_bytes;  // per row; 0: no weights
  int is_topk_int64;
  int zeroes_gaps;
};

struct DispatchView {
  const std::byte* x;
  std::int64_t x_pitch;
  std::int64_t row_bytes;    // as delivered
  const std::byte* weights;  // float32 [T, K], or null
  std::int64_t weights_pitch;
  const std::byte* scales;  // the caller's, or null
  std::int64_t scale_pitch;
  std::int64_t scale_stride;
  std::int64_t scale_bytes;  // per delivered row, of either origin
  int scale_element_bytes;
  int is_topk_int64;
  std::int64_t* counts_to;  // the delivery's counts
  CompleteView complete;
  int transform;  // Transform
  int dtype;      // ferry::DType of the rows, for kScale
  int expands;    // of a token's rows for one rank, the first one alone is sent
  std::int64_t hidden;
};
// What a warp keeps in shared memory to quantise rows: one arriving, one leaving. Offsets in bytes.
struct QuantizeStage {
  std::int64_t codes;
  std::int64_t scales;
  std::int64_t bytes;
};
__host__ __device__ constexpr QuantizeStage quantize_stage(std::int64_t hidden,
                                                           std::int64_t scale_bytes) {
  constexpr std::int64_t kLine = 128;
  const std::int64_t codes = (2 * hidden + kLine - 1) / kLine * kLine;
  const std::int64_t scales = codes + (hidden + kLine - 1) / kLine * kLine;
  return {codes, scales, scales + (scale_bytes + kLine - 1) / kLine * kLine};
}

enum Transform : int { kCopy = 0, kScale = 1, kQuantizeFp32 = 2, kQuantizeUe8m0 = 3 };

struct MoveLaunch {
  int num_blocks;
  int num_warps;  // a block
  int is_bulk;    // rows go through shared memory, else through registers
  int shared_bytes;
};
cudaError_t launch_dispatch(const ExchangeView& exchange,
                            const RouteView& route,
                            const DispatchView& dispatch,
                            const MoveLaunch& launch,
                            cudaStream_t stream);

// What the receiver copies itself: rows and their scales, from the first row of the same token.
struct ExpandView {
  const std::uint32_t* route_error;
  const std::int32_t* row_expert;  // -1 in gaps
  const std::int32_t* copy_of;
  std::byte* rows;
  std::byte* scales;
  std::int64_t num_output_rows;
  std::int64_t row_bytes;
  std::int64_t scale_bytes;
};
cudaError_t launch_expand(const ExchangeView& exchange,
                          const ExpandView& view,
                          int num_blocks,
                          cudaStream_t stream);

// Row-major scales [rows, S] to element (row, s) at s * pitch + row, per block of `block_rows`
// rows.
struct TransposeView {
  const std::byte* from;
  std::byte* to;
  std::int64_t block_rows;
  std::int64_t num_blocks;
  std::int64_t num_scales;
  int element_bytes;
};
cudaError_t launch_transpose(const TransposeView& view, cudaStream_t stream);

// --- combine (combine.cu, combine_stage.cu) -----------------------------------------------------

// Rows of a y outside the arena, to be copied into it. Addresses and pitch are multiples of 16
// bytes.
struct StageView {
  const std::byte* y;
  std::int64_t y_pitch;
  std::byte* to;  // rows lie row_bytes apart
  std::int64_t row_bytes;
  std::int64_t num_rows;
  std::int64_t rows_per_expert;  // of kPadded; else 0
};
// Copies the rows that were delivered.
cudaError_t launch_stage(const RouteView& route,
                         const StageView& stage,
                         int num_sms,
                         cudaStream_t stream);

struct CombineView {
  std::byte* out;
  std::int64_t out_pitch;
  std::int64_t row_bytes;
  const std::byte* topk_weights;  // weighted sum, or null
  std::int64_t topk_weights_pitch;
  const std::byte* bias;
  std::int64_t bias_pitch;
  const std::byte* second_bias;
  std::int64_t second_bias_pitch;
  int dtype;  // ferry::DType
};
cudaError_t launch_combine(const ExchangeView& exchange,
                           const RouteView& route,
                           const CombineView& combine,
                           const MoveLaunch& launch,
                           cudaStream_t stream);

// Weights of rows on their way back: [T, K], 0 where nothing was selected.
cudaError_t launch_combine_weights(const ExchangeView& exchange,
                                   const RouteView& route,
                                   float* combined_weights,
                                   cudaStream_t stream);

// --- low latency: gate, move and gate in one kernel (low_latency.cu) ----------------------------

struct LowLatencyGate {
  int waits;               // for the peers' moves, too; else a closing gate does
  std::int32_t operation;  // layout::Operation, for messages
};

// A team of warps holds one token's row in registers while the peers' words arrive.
struct LowLatencyLaunch {
  static constexpr int kTeamWarps = 4;
  static constexpr int kMostTeams = 8;   // a block
  static constexpr int kHeldPieces = 8;  // of 16 bytes of x, a lane
  static constexpr int kCombineWarps = 16;
  // The widest row of x.
  static constexpr std::int64_t kMostRowBytes = std::int64_t{16} * 32 * kTeamWarps * kHeldPieces;
  // Bytes of shared memory for the scales of one row.
  __host__ __device__ static constexpr std::int64_t scale_stage(std::int64_t scale_bytes) {
    return (scale_bytes + 15) / 16 * 16;
  }

  int num_blocks;
  int num_teams;
};
cudaError_t launch_dispatch_at_once(const ExchangeView& exchange,
                                    const RouteView& route,
                                    const DispatchView& dispatch,
                                    const OpenGate& open,
                                    const LowLatencyGate& gate,
                                    const LowLatencyLaunch& launch,
                                    cudaStream_t stream);
cudaError_t launch_combine_at_once(const ExchangeView& exchange,
                                   const RouteView& route,
                                   const CombineView& combine,
                                   const OpenGate& open,
                                   const LowLatencyGate& gate,
                                   int num_blocks,
                                   cudaStream_t stream);

// --- device tools ------------------------------------------------------------------------------

cudaError_t launch_delay(std::uint64_t nanoseconds, cudaStream_t stream);

// Loads every kernel (a kernel's first launch must not have to) and lets moves use `shared_bytes`
// of shared memory. Returns the first error.
cudaError_t prepare_kernels(int shared_bytes);

}  // namespace ferry::cuda
