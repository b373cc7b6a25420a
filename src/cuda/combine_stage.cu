// Combine, before its gate: a y that lies outside the arena is copied into it. Only rows that a
// token has are read: in kPadded and in worst-case sizing most places are empty.
#include "cuda/kernels.hpp"

namespace ferry::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;
constexpr int kInFlight = 4;  // pieces of 16 bytes, a thread

__device__ bool is_delivered(const RouteView& route, const StageView& stage, std::int64_t row) {
  if (stage.rows_per_expert == 0) return row < route.counts[0];
  const std::int64_t local_expert = row / stage.rows_per_expert;
  return row % stage.rows_per_expert < route.counts[1 + local_expert];
}

__device__ void copy_row(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  const std::int64_t num_pieces = bytes / std::int64_t{sizeof(uint4)};
  for (std::int64_t first = threadIdx.x; first < num_pieces; first += kInFlight * kThreads) {
    uint4 pieces[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (first + i * kThreads < num_pieces) pieces[i] = __ldcs(source + first + i * kThreads);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (first + i * kThreads < num_pieces) __stcs(target + first + i * kThreads, pieces[i]);
  }
}

// A block copies every gridDim-th row.
__global__ void __launch_bounds__(kThreads)
    stage_rows(const __grid_constant__ RouteView route, const __grid_constant__ StageView stage) {
  for (std::int64_t row = blockIdx.x; row < stage.num_rows; row += gridDim.x)
    if (is_delivered(route, stage, row))
      copy_row(stage.y + row * stage.y_pitch, stage.to + row * stage.row_bytes, stage.row_bytes);
}

}  // namespace

cudaError_t launch_stage(const RouteView& route,
                         const StageView& stage,
                         int num_sms,
                         cudaStream_t stream) {
  if (stage.num_rows == 0) return cudaSuccess;
  const std::int64_t most_blocks = std::int64_t{num_sms} * kBlocksPerSm;
  const auto num_blocks =
      static_cast<unsigned>(stage.num_rows < most_blocks ? stage.num_rows : most_blocks);
  stage_rows<<<num_blocks, kThreads, 0, stream>>>(route, stage);
  return cudaGetLastError();
}

cudaError_t prepare_stage_kernels() {
  cudaFuncAttributes ignored;
  return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(&stage_rows));
}

}  // namespace ferry::cuda
