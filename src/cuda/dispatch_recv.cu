// Dispatch, the receiving half, behind the closing gate: rows that crossed the link once are copied
// to their other experts, and scales are transposed.
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"

namespace ferry::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;

template <typename Element>
__global__ void __launch_bounds__(kThreads) transpose(const __grid_constant__ TransposeView view) {
  const std::int64_t pitch = (view.block_rows + 3) / 4 * 4;
  const std::int64_t per_block = view.block_rows * view.num_scales;
  const std::int64_t total = view.num_blocks * per_block;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < total;
       i += step) {
    const std::int64_t block = i / per_block;
    // Neighbouring threads write neighbouring rows of one scale.
    const std::int64_t scale = i % per_block / view.block_rows;
    const std::int64_t row = i % view.block_rows;
    reinterpret_cast<Element*>(view.to)[block * pitch * view.num_scales + scale * pitch + row] =
        reinterpret_cast<const Element*>(
            view.from)[block * per_block + row * view.num_scales + scale];
  }
}

constexpr int kExpandWarps = 16;

// Bytes of a row or of its scales, whole warp; 16 at a time where they allow it.
__device__ void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, int lane) {
  constexpr int kUnroll = 4;
  if (bytes % 16 != 0) {
    for (std::int64_t i = lane; i < bytes; i += 32) to[i] = from[i];
    return;
  }
  const auto num_pieces = static_cast<int>(bytes / 16);
  for (int first = lane; first < num_pieces; first += 32 * kUnroll) {
    uint4 pieces[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (const int at = first + u * 32; at < num_pieces)
        pieces[u] = reinterpret_cast<const uint4*>(from)[at];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (const int at = first + u * 32; at < num_pieces)
        reinterpret_cast<uint4*>(to)[at] = pieces[u];
  }
}

// A warp looks at 32 rows at once and copies those that want it, one after the other.
__global__ void __launch_bounds__(kExpandWarps * 32)
    expand(const __grid_constant__ ExchangeView exchange, const __grid_constant__ ExpandView view) {
  if (is_stopped(exchange) || *view.route_error != 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Neighbouring rows go to different warps: those of a padded expert's end want nothing.
  const std::int64_t warp = std::int64_t{blockIdx.x} * kExpandWarps + threadIdx.x / 32;
  const std::int64_t num_warps = std::int64_t{gridDim.x} * kExpandWarps;
  for (std::int64_t first = warp; first < view.num_output_rows; first += 32 * num_warps) {
    const std::int64_t own = first + lane * num_warps;
    const bool is_row = own < view.num_output_rows;
    const int expert = is_row ? view.row_expert[own] : -1;
    const int from_own = is_row ? view.copy_of[own] : -1;
    // A refused operation has written nothing: what an earlier one left may name any row.
    const bool is_copied = expert >= 0 && from_own >= 0 && from_own < view.num_output_rows;
    for (unsigned left = __ballot_sync(0xFFFFFFFFU, is_copied); left != 0; left &= left - 1) {
      const int index = __ffs(static_cast<int>(left)) - 1;
      const std::int64_t row = first + index * num_warps;
      const std::int64_t from = __shfl_sync(0xFFFFFFFFU, from_own, index);
      copy_bytes(view.rows + row * view.row_bytes, view.rows + from * view.row_bytes,
                 view.row_bytes, lane);
      copy_bytes(view.scales + row * view.scale_bytes, view.scales + from * view.scale_bytes,
                 view.scale_bytes, lane);
    }
  }
}

}  // namespace

cudaError_t launch_expand(const ExchangeView& exchange,
                          const ExpandView& view,
                          int num_blocks,
                          cudaStream_t stream) {
  expand<<<static_cast<unsigned>(num_blocks), kExpandWarps * 32, 0, stream>>>(exchange, view);
  return cudaGetLastError();
}

cudaError_t launch_transpose(const TransposeView& view, cudaStream_t stream) {
  if (view.num_blocks * view.block_rows * view.num_scales == 0) return cudaSuccess;
  switch (view.element_bytes) {
    case 1: transpose<std::uint8_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
    case 2: transpose<std::uint16_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
    default: transpose<std::uint32_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
  }
  return cudaGetLastError();
}

cudaError_t prepare_receiving_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&expand),
                             reinterpret_cast<const void*>(&transpose<std::uint8_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint16_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint32_t>)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
