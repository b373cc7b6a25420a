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

__device__ void wait_done(const ExchangeView& exchange,
                          std::uint64_t sequence,
                          std::int32_t operation) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    for (int peer = static_cast<int>(threadIdx.x) / 32; peer < exchange.num_ranks;
         peer += kGateWarps) {
      const GateFault stopped{GateFault::kStopped, peer, operation, 0, sequence, 0, 0};
      if (!wait_for(exchange, done_word(exchange, exchange.arena, peer), sequence,
                    exchange.progress_ns, stopped))
        break;
    }
  }
  fence_proxy();
}

// The move's stores come before this kernel, so the release covers them.
__global__ void __launch_bounds__(kGateWarps * 32)
    close_gate(const __grid_constant__ ExchangeView exchange,
               const __grid_constant__ CloseGate gate) {
  if (is_stopped(exchange)) return;
  const std::uint64_t sequence = exchange.state->sequence_of[gate.operation_slot];
  if (gate.announces != 0 && threadIdx.x < static_cast<unsigned>(exchange.num_ranks)) {
    fence_system();
    for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
         peer += static_cast<int>(blockDim.x))
      store_release(done_word(exchange, exchange.peer_base[peer], exchange.rank), sequence);
  }
  if (gate.waits != 0) wait_done(exchange, sequence, gate.operation);
}

__global__ void __launch_bounds__(kGateWarps * 32)
    staging_wait(const __grid_constant__ ExchangeView exchange) {
  if (is_stopped(exchange)) return;
  wait_done(exchange, exchange.state->last_staged, 0);
}

__global__ void delay(std::uint64_t nanoseconds) {
  const std::uint64_t start = now_ns();
  while (now_ns() - start < nanoseconds) __nanosleep(1000);
}

}  // namespace

cudaError_t launch_open_gate(const ExchangeView& exchange,
                             const OpenGate& gate,
                             cudaStream_t stream) {
  const GateArgs args{gate.slot,      gate.route_error,           gate.operation_slot,
                      gate.is_staged, &exchange.mailbox->refusal, &exchange.mailbox->num_refused};
  open_gate<<<1, kGateWarps * 32, 0, stream>>>(exchange, args);
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
