#pragma once

#include <cstdint>

#include "cuda/device_state.hpp"
#include "cuda/memory_order.cuh"
#include "layout/gpu_gate.hpp"

// How ranks keep in step: the opening gate (reach an operation, wait for all) and the closing one
// (say that one's move is complete, wait for all). Run by one block; only these ever wait.
namespace ferry::cuda {

using layout::GateSlot;
using layout::GpuGateLayout;

// What this rank says at an opening gate; words[kSequence] is drawn on the device.
struct GateArgs {
  GateSlot slot;
  const std::uint32_t* route_error;  // of the route that the operation follows, or null
  int operation_slot;
  int is_staged;               // this rank's y lies in the staging area
  Refusal* refusal;            // pinned: where a refusal is noted
  std::uint32_t* num_refused;  // pinned, counts them; or null
};

__device__ __forceinline__ std::int32_t operation_of(const std::uint64_t* shape) {
  // The first field of OperationShape.
  return static_cast<std::int32_t>(shape[0] & 0xFFFFFFFFU);
}

__device__ __forceinline__ GateSlot* slot_of(const ExchangeView& exchange,
                                             std::uint64_t arena,
                                             std::uint64_t sequence,
                                             int source) {
  return reinterpret_cast<GateSlot*>(arena + exchange.gate.slots) +
         (sequence % GateSlot::kRing) * exchange.num_ranks + source;
}

// What `source` said at the gate of the operation at hand; for kernels behind that gate.
__device__ __forceinline__ const GateSlot& said_by(const ExchangeView& exchange, int source) {
  return *slot_of(exchange, exchange.arena, exchange.state->sequence, source);
}

__device__ __forceinline__ std::uint64_t* done_word(const ExchangeView& exchange,
                                                    std::uint64_t arena,
                                                    int source) {
  return reinterpret_cast<std::uint64_t*>(arena + exchange.gate.done +
                                          source * GpuGateLayout::kDonePitch);
}

__device__ __forceinline__ bool is_stopped(const ExchangeView& exchange) {
  return *reinterpret_cast<volatile std::uint32_t*>(&exchange.state->is_aborted) != 0;
}

// Nothing may be moved: a fault, or the operation at hand was refused.
__device__ __forceinline__ bool is_idle(const ExchangeView& exchange) {
  return is_stopped(exchange) ||
         *reinterpret_cast<volatile std::uint32_t*>(&exchange.state->is_refused) != 0;
}

// The first fault goes to the host; every later one only stops.
__device__ inline void report_fault(const ExchangeView& exchange, const GateFault& fault) {
  if (atomicExch(&exchange.state->is_aborted, 1U) != 0) return;
  exchange.mailbox->fault = fault;
  __threadfence_system();  // pairs with the host's acquire load of has_fault
  *reinterpret_cast<volatile std::uint32_t*>(&exchange.mailbox->has_fault) = 1;
}

// A posted write: the host reads it without asking the device.
__device__ __forceinline__ void count_wait(const ExchangeView& exchange,
                                           int peer,
                                           std::uint64_t waited_ns) {
  const std::uint64_t total = exchange.state->wait_ns[peer] += waited_ns;
  *reinterpret_cast<volatile std::uint64_t*>(&exchange.mailbox->wait_ns[peer]) = total;
}

// One lane: polls a word of this rank's own arena until it reaches `target`. False: a fault.
__device__ inline bool wait_for(const ExchangeView& exchange,
                                const std::uint64_t* word,
                                std::uint64_t target,
                                std::uint64_t deadline_ns,
                                GateFault fault) {
  if (load_acquire(word) >= target) return true;
  const std::uint64_t start = now_ns();
  bool is_noted = false;
  const auto note = [&](std::uint32_t value) {
    is_noted = value != 0;
    *reinterpret_cast<volatile std::uint32_t*>(&exchange.mailbox->waits_for[fault.peer]) = value;
  };
  for (std::uint32_t round = 1;; ++round) {
    const std::uint64_t seen = load_acquire(word);
    if (seen >= target) {
      if (fault.peer != exchange.rank) count_wait(exchange, fault.peer, now_ns() - start);
      if (is_noted) note(0);
      return true;
    }
    if (round % 64 != 0) continue;
    if (is_stopped(exchange)) return false;
    if (load_relaxed(&exchange.mailbox->abort) != 0) {
      atomicExch(&exchange.state->is_aborted, 1U);
      return false;
    }
    const std::uint64_t waited = now_ns() - start;
    if (waited > 100000) {  // far beyond an ordinary wait: leave the memory alone
      if (!is_noted) note(1);
      __nanosleep(500);
    }
    if (waited <= deadline_ns) continue;
    fault.seen = seen;
    fault.waited_ns = waited;
    report_fault(exchange, fault);
    return false;
  }
}

// Compares what everybody said with rank 0 (whole block; `first_odd` in shared memory becomes the
// lowest rank that differs, or num_ranks).
__device__ inline void compare_shapes(const ExchangeView& exchange,
                                      std::uint64_t sequence,
                                      int* first_odd) {
  const GateSlot* reference = slot_of(exchange, exchange.arena, sequence, 0);
  for (int i = static_cast<int>(threadIdx.x); i < exchange.num_ranks * GateSlot::kShapeWords;
       i += static_cast<int>(blockDim.x)) {
    const int peer = i / GateSlot::kShapeWords;
    const int word = GateSlot::kShape + i % GateSlot::kShapeWords;
    const GateSlot* slot = slot_of(exchange, exchange.arena, sequence, peer);
    if (load_relaxed(&slot->words[word]) != load_relaxed(&reference->words[word]))
      atomicMin(first_odd, peer);
  }
}

// Notes why the operation is refused: `rank` said so, or differs from rank 0. Whole block.
__device__ inline void note_refusal(const ExchangeView& exchange,
                                    const GateArgs& args,
                                    std::uint64_t sequence,
                                    int rank) {
  Refusal& refusal = *args.refusal;
  const GateSlot* said = slot_of(exchange, exchange.arena, sequence, rank);
  const GateSlot* reference = slot_of(exchange, exchange.arena, sequence, 0);
  const char* text =
      reinterpret_cast<const char*>(exchange.peer_base[rank] + exchange.gate.error_text +
                                    (sequence % GateSlot::kRing) * GpuGateLayout::kErrorTextBytes);
  for (int i = static_cast<int>(threadIdx.x); i < GpuGateLayout::kErrorTextBytes;
       i += static_cast<int>(blockDim.x))
    refusal.text[i] = *reinterpret_cast<const volatile char*>(text + i);
  if (threadIdx.x < GateSlot::kShapeWords) {
    refusal.reference[threadIdx.x] =
        load_relaxed(&reference->words[GateSlot::kShape + threadIdx.x]);
    refusal.other[threadIdx.x] = load_relaxed(&said->words[GateSlot::kShape + threadIdx.x]);
  }
  if (threadIdx.x == 0) {
    refusal.rank = rank;
    refusal.code = static_cast<std::int32_t>(load_relaxed(&said->words[GateSlot::kErrorCode]));
    refusal.sequence = sequence;
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0 && args.num_refused != nullptr) {  // pairs with the host's acquire load
    auto* num_refused = reinterpret_cast<volatile std::uint32_t*>(args.num_refused);
    *num_refused = *num_refused + 1;
  }
}

// Opening gate: publishes this rank's words, waits for everybody's, compares shapes, notes
// refusals. Whole block. False: a fault; nothing may follow. `is_refused`, where given, tells why
// it is idle.
__device__ inline bool pass_gate(const ExchangeView& exchange,
                                 const GateArgs& args,
                                 bool* is_refused = nullptr) {
  __shared__ std::uint64_t words[GateSlot::kWords];
  __shared__ int first_refusing;
  __shared__ int first_odd;
  __shared__ int has_difference;
  __shared__ int is_stopped_at_entry;
  __shared__ int has_failed;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  const std::uint64_t sequence = exchange.state->sequence + 1;
  if (threadIdx.x < GateSlot::kWords) words[threadIdx.x] = args.slot.words[threadIdx.x];
  if (threadIdx.x == 0) {
    first_refusing = exchange.num_ranks;
    first_odd = exchange.num_ranks;
    has_difference = 0;
    has_failed = 0;
    is_stopped_at_entry = is_stopped(exchange) ? 1 : 0;
  }
  // The block's earlier stores (counts of a route) come before each lane's release below.
  __syncthreads();
  if (is_stopped_at_entry != 0) return false;

  for (int peer = warp; peer < exchange.num_ranks; peer += num_warps) {
    GateSlot* slot = slot_of(exchange, exchange.peer_base[peer], sequence, exchange.rank);
    if (lane > 0 && lane < GateSlot::kWords) store_relaxed(&slot->words[lane], words[lane]);
    __syncwarp();
    if (lane == 0) {
      fence_system();
      store_release(&slot->words[GateSlot::kSequence], sequence);
    }
  }
  const std::int32_t operation = operation_of(&words[GateSlot::kShape]);
  for (int peer = warp; peer < exchange.num_ranks; peer += num_warps) {
    const GateSlot* slot = slot_of(exchange, exchange.arena, sequence, peer);
    bool has_arrived = true;
    if (lane == 0) {
      const GateFault late{GateFault::kLate, peer, operation, 0, sequence, 0, 0};
      has_arrived = wait_for(exchange, &slot->words[GateSlot::kSequence], sequence,
                             exchange.arrival_ns, late);
    }
    // The lanes behind lane 0's acquire read what came with it, each its word.
    has_arrived = __shfl_sync(0xFFFFFFFFU, has_arrived ? 1 : 0, 0) != 0;
    if (!has_arrived) {
      has_failed = 1;
      continue;
    }
    const std::uint64_t theirs = lane < GateSlot::kWords ? load_relaxed(&slot->words[lane]) : 0;
    if (lane == GateSlot::kShape && operation_of(&theirs) != operation) {
      report_fault(exchange, {GateFault::kDiffers, peer, operation, operation_of(&theirs), sequence,
                              sequence, 0});
      has_failed = 1;
    }
    if (lane >= GateSlot::kShape && lane < GateSlot::kShape + GateSlot::kShapeWords &&
        theirs != words[lane])
      has_difference = 1;
    if (lane == GateSlot::kErrorCode && theirs != 0) atomicMin(&first_refusing, peer);
  }
  fence_proxy();
  __syncthreads();
  if (has_failed != 0) return false;
  // Along a route with an error, which is the same on every rank, nothing else is worth telling.
  const bool has_route_error =
      args.route_error != nullptr &&
      *reinterpret_cast<const volatile std::uint32_t*>(args.route_error) != 0;
  if (has_difference != 0 && !has_route_error) {
    compare_shapes(exchange, sequence, &first_odd);
    __syncthreads();
  }

  // An unusable argument explains a difference, not the other way round.
  const int refusing = first_refusing < exchange.num_ranks ? first_refusing : first_odd;
  const bool is_all_refused = refusing < exchange.num_ranks;
  if (is_all_refused) note_refusal(exchange, args, sequence, refusing);
  if (is_refused != nullptr) *is_refused = is_all_refused;
  if (threadIdx.x == 0) {
    DeviceState& state = *exchange.state;
    state.sequence = sequence;
    state.sequence_of[args.operation_slot] = sequence;
    state.next_piece = 0;
    if (args.is_staged != 0) state.last_staged = sequence;
    state.is_refused = is_all_refused || has_route_error ? 1 : 0;
  }
  __syncthreads();
  return true;
}

}  // namespace ferry::cuda
