// Dispatch, the receiving half: what only the receiver knows of its delivery. It touches no row
// that a peer writes, so it needs no gate of its own.
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

}  // namespace

cudaError_t launch_transpose(const TransposeView& view, cudaStream_t stream) {
  if (view.num_blocks * view.block_rows * view.num_scales == 0) return cudaSuccess;
  switch (view.element_bytes) {
    case 1: transpose<std::uint8_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
    case 2: transpose<std::uint16_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
    default: transpose<std::uint32_t><<<kBlocks, kThreads, 0, stream>>>(view); break;
  }
  return cudaGetLastError();
}

cudaError_t prepare_transpose_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&transpose<std::uint8_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint16_t>),
                             reinterpret_cast<const void*>(&transpose<std::uint32_t>)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
