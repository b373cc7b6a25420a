// Dispatch, the receiving half: what only the receiver knows of its delivery. It touches no row
// that a peer writes, so it needs no gate of its own.
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

namespace ferry::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;

// The local expert whose part of the delivery holds `row`, and whether the row is real.
struct RowOwner {
  int expert;
  bool is_real;
};

__device__ RowOwner find_owner(const RouteView& route, std::int64_t row) {
  const std::int64_t* counts = route.counts + 1;
  const std::int64_t* offsets = counts + 2 * route.num_local;
  int low = 0;
  int high = route.num_local;  // the last expert that starts at or before the row, [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (offsets[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  const bool is_real =
      route.num_local > 0 && row >= offsets[low] && row < offsets[low] + counts[low];
  return {low, is_real};
}

__device__ void fill_bytes(std::byte* start, std::int64_t bytes, unsigned char value, int lane) {
  for (std::int64_t i = lane; i < bytes; i += 32)
    *reinterpret_cast<unsigned char*>(start + i) = value;
}

__device__ void fill_words(std::byte* start, std::int64_t bytes, int lane) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uint64_t>(start) % 16 != 0)
    return fill_bytes(start, bytes, 0, lane);
  for (std::int64_t i = lane; i < bytes / 16; i += 32)
    reinterpret_cast<uint4*>(start)[i] = make_uint4(0, 0, 0, 0);
}

// A warp per row.
__global__ void __launch_bounds__(kThreads) complete(const __grid_constant__ ExchangeView exchange,
                                                     const __grid_constant__ RouteView route,
                                                     const __grid_constant__ CompleteView view) {
  if (is_idle(exchange)) return;
  const bool is_by_rank = static_cast<Layout>(route.layout) == Layout::kByRank;
  const int num_counts = 1 + 3 * route.num_local + 1 + (is_by_rank ? exchange.num_ranks + 1 : 0);
  if (blockIdx.x == 0)
    for (int i = static_cast<int>(threadIdx.x); i < num_counts; i += kThreads)
      view.counts[i] = route.counts[i];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kThreads / 32);
  const std::int64_t id_bytes = exchange.top_k * (view.is_topk_int64 != 0 ? 8 : 4);
  for (std::int64_t row = first; row < view.num_output_rows; row += step) {
    const RowOwner owner = is_by_rank ? RowOwner{0, row < route.counts[0]} : find_owner(route, row);
    if (is_by_rank && !owner.is_real)
      fill_bytes(view.topk_idx + row * id_bytes, id_bytes, 0xFF, lane);
    if (!is_by_rank && lane == 0) view.row_expert[row] = owner.is_real ? owner.expert : -1;
    if (owner.is_real || view.zeroes_gaps == 0) continue;
    fill_words(view.rows + row * view.row_bytes, view.row_bytes, lane);
    fill_words(view.scales + row * view.scale_bytes, view.scale_bytes, lane);
    fill_words(view.weights + row * view.weight_bytes, view.weight_bytes, lane);
  }
}

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

}  // namespace

cudaError_t launch_complete(const ExchangeView& exchange,
                            const RouteView& route,
                            const CompleteView& view,
                            cudaStream_t stream) {
  complete<<<kBlocks, kThreads, 0, stream>>>(exchange, route, view);
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

cudaError_t prepare_complete_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&complete),
                             reinterpret_cast<const void*>(&transpose<std::uint8_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint16_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint32_t>)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
