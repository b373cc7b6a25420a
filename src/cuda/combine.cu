// Combine, the high-throughput form: a warp per token.
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "cuda/sum_rows.cuh"

namespace ferry::cuda {

namespace {

constexpr int kWarps = 16;

template <DType kDType, bool kIsWeighted>
__global__ void __launch_bounds__(kWarps * 32, 1)
    combine_rows(const __grid_constant__ ExchangeView exchange,
                 const __grid_constant__ RouteView route,
                 const __grid_constant__ CombineView combine) {
  __shared__ Source sources[kMostPeers];
  if (is_idle(exchange)) return;
  read_sources(exchange, sources);
  __syncthreads();
  sum_rows<kDType, kIsWeighted, 1, 2>(exchange, route, combine, sources);
}

// A warp per token, a lane per column.
__global__ void __launch_bounds__(256)
    combine_weights(const __grid_constant__ ExchangeView exchange,
                    const __grid_constant__ RouteView route,
                    float* combined_weights) {
  __shared__ Source sources[kMostPeers];
  if (is_idle(exchange)) return;
  read_sources(exchange, sources);
  __syncthreads();
  const bool is_by_rank = static_cast<Layout>(route.layout) == Layout::kByRank;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * 8;
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
       token < route.num_tokens; token += step) {
    const int count = route.num_entries[token];
    const std::uint32_t home =
        lane < exchange.top_k ? route.home[token * exchange.top_k + lane] : RouteView::kNowhere;
    float weight = 0.0F;
    for (int index = 0; index < count; ++index) {
      const RowEntry entry = route.entries[token * exchange.top_k + index];
      const float* weights = sources[entry.rank].weights;
      if (is_by_rank) {
        if (home != RouteView::kNowhere && home >> 16 == entry.rank)
          weight = weights[static_cast<std::int64_t>(entry.row) * exchange.top_k + lane];
      } else if (entry.k == lane) {
        weight = weights[entry.row];
      }
    }
    if (lane < exchange.top_k) combined_weights[token * exchange.top_k + lane] = weight;
  }
}

template <DType kDType>
void launch_sum(const ExchangeView& exchange,
                const RouteView& route,
                const CombineView& combine,
                const MoveLaunch& launch,
                cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(launch.num_blocks);
  const auto threads = static_cast<unsigned>(launch.num_warps) * 32;
  const auto shared = static_cast<std::size_t>(launch.shared_bytes);
  if (combine.topk_weights != nullptr)
    combine_rows<kDType, true><<<blocks, threads, shared, stream>>>(exchange, route, combine);
  else
    combine_rows<kDType, false><<<blocks, threads, shared, stream>>>(exchange, route, combine);
}

}  // namespace

cudaError_t launch_combine(const ExchangeView& exchange,
                           const RouteView& route,
                           const CombineView& combine,
                           const MoveLaunch& launch,
                           cudaStream_t stream) {
  switch (static_cast<DType>(combine.dtype)) {
    case DType::kFp16: launch_sum<DType::kFp16>(exchange, route, combine, launch, stream); break;
    case DType::kFp32: launch_sum<DType::kFp32>(exchange, route, combine, launch, stream); break;
    default: launch_sum<DType::kBf16>(exchange, route, combine, launch, stream); break;
  }
  return cudaGetLastError();
}

cudaError_t launch_combine_weights(const ExchangeView& exchange,
                                   const RouteView& route,
                                   float* combined_weights_out,
                                   cudaStream_t stream) {
  combine_weights<<<16, 256, 0, stream>>>(exchange, route, combined_weights_out);
  return cudaGetLastError();
}

cudaError_t prepare_combine_kernels(int shared_bytes) {
  cudaFuncAttributes ignored;
  for (const void* kernel : {reinterpret_cast<const void*>(&combine_rows<DType::kBf16, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kBf16, true>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp16, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp16, true>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp32, false>),
                             reinterpret_cast<const void*>(&combine_rows<DType::kFp32, true>)})
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
        error != cudaSuccess)
      return error;
  return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(&combine_weights));
}

}  // namespace ferry::cuda
