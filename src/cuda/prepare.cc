#include "cuda/kernels.hpp"

namespace ferry::cuda {

cudaError_t prepare_gate_kernels();
cudaError_t prepare_route_kernels();
cudaError_t prepare_dispatch_kernels(int shared_bytes);
cudaError_t prepare_receiving_kernels();
cudaError_t prepare_combine_kernels(int shared_bytes);
cudaError_t prepare_stage_kernels();
cudaError_t prepare_low_latency_kernels();

cudaError_t prepare_kernels(int shared_bytes) {
  for (const cudaError_t error :
       {prepare_gate_kernels(), prepare_route_kernels(), prepare_dispatch_kernels(shared_bytes),
        prepare_receiving_kernels(), prepare_combine_kernels(shared_bytes), prepare_stage_kernels(),
        prepare_low_latency_kernels()})
    if (error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
