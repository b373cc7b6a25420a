#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"

namespace ferry::cuda {

namespace {

constexpr int kGateWarps = 8;

__global__ void __launch_bounds__(kGateWarps * 32)
    open_gate(const __grid_constant__ ExchangeView exchange,
              const __grid_constant__ GateArgs args) {
  pass_gate(exchange, args);
}

__global__ void __launch_bounds__(kGateWarps * 32)
    close_gate(const __grid_constant__ ExchangeView exchange,
               const __grid_constant__ CloseGate gate) {
  if (is_stopped(exchange)) return;
  const std::uint64_t sequence = exchange.state->sequence_of[gate.operation_slot];
  if (gate.announces != 0) announce(exchange, sequence);
  if (gate.waits != 0) wait_done(exchange, sequence, gate.operation, {0, exchange.num_ranks});
}

__global__ void __launch_bounds__(kGateWarps * 32)
    staging_wait(const __grid_constant__ ExchangeView exchange) {
  if (is_stopped(exchange)) return;
  wait_done(exchange, exchange.state->last_staged, 0, {0, exchange.num_ranks});
}

__global__ void delay(std::uint64_t nanoseconds) {
  const std::uint64_t start = now_ns();
  while (now_ns() - start < nanoseconds) __nanosleep(1000);
}

}  // namespace

cudaError_t launch_open_gate(const ExchangeView& exchange,
                             const OpenGate& gate,
                             cudaStream_t stream) {
  open_gate<<<1, kGateWarps * 32, 0, stream>>>(exchange, gate_args(exchange, gate));
  return cudaGetLastError();
}

cudaError_t launch_close_gate(const ExchangeView& exchange,
                              const CloseGate& gate,
                              cudaStream_t stream) {
  close_gate<<<1, kGateWarps * 32, 0, stream>>>(exchange, gate);
  return cudaGetLastError();
}

cudaError_t launch_staging_wait(const ExchangeView& exchange, cudaStream_t stream) {
  staging_wait<<<1, kGateWarps * 32, 0, stream>>>(exchange);
  return cudaGetLastError();
}

cudaError_t launch_delay(std::uint64_t nanoseconds, cudaStream_t stream) {
  delay<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

cudaError_t prepare_gate_kernels() {
  cudaFuncAttributes ignored;
  for (const void* kernel :
       {reinterpret_cast<const void*>(&open_gate), reinterpret_cast<const void*>(&close_gate),
        reinterpret_cast<const void*>(&staging_wait), reinterpret_cast<const void*>(&delay)})
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel); error != cudaSuccess)
      return error;
  return cudaSuccess;
}

}  // namespace ferry::cuda
