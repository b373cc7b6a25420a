#pragma once

#include <cstdint>

#include "cuda/device_state.hpp"
#include "cuda/kernels.hpp"
#include "cuda/memory_order.cuh"
#include "layout/gpu_gate.hpp"

// How ranks keep in step: the opening gate (reach an operation, wait for all) and the closing one
// (say that one's move is complete, wait for all). Run by one block; only these ever wait.
namespace ferry::cuda {

using layout::GateSlot;
using layout::GpuGateLayout;
using layout::HeardSlot;

// What this rank says at an opening gate; words[kSequence] is drawn on the device.
struct GateArgs {
  GateSlot slot;
  const std::uint32_t* route_error;  // of the route that the operation follows, or null
  int operation_slot;
  int is_staged;               // this rank's y lies in the staging area
  Refusal* refusal;            // pinned: where a refusal is noted
  std::uint32_t* num_refused;  // pinned, counts them; or null
};

inline GateArgs gate_args(const ExchangeView& exchange, const OpenGate& gate) {
  return {gate.slot,      gate.route_error,           gate.operation_slot,
          gate.is_staged, &exchange.mailbox->refusal, &exchange.mailbox->num_refused};
}

__device__ __forceinline__ std::int32_t operation_of(const std::uint64_t* shape) {
  // The first field of OperationShape.
  return static_cast<std::int32_t>(shape[0] & 0xFFFFFFFFU);
}

__device__ __forceinline__ HeardSlot* slot_of(const ExchangeView& exchange,
                                              std::uint64_t arena,
                                              std::uint64_t sequence,
                                              int source) {
  return reinterpret_cast<HeardSlot*>(arena + exchange.gate.slots) +
         (sequence % HeardSlot::kRing) * exchange.num_ranks + source;
}

__device__ __forceinline__ std::uint32_t tag_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence);
}

__device__ __forceinline__ std::uint64_t value_of(const HeardSlot::Word& word) {
  return word.high << 32 | (word.low & 0xFFFFFFFFU);
}

// A word that has arrived.
__device__ __forceinline__ std::uint64_t heard(const HeardSlot& slot, int word) {
  return value_of(load_relaxed(&slot.words[word]));
}

// What `source` said at the gate of an operation; for code behind that gate.
__device__ __forceinline__ const HeardSlot& said_by(const ExchangeView& exchange,
                                                    std::uint64_t sequence,
                                                    int source) {
  return *slot_of(exchange, exchange.arena, sequence, source);
}

__device__ __forceinline__ std::uint64_t* done_word(const ExchangeView& exchange,
                                                    std::uint64_t arena,
                                                    int source,
                                                    int word) {
  return reinterpret_cast<std::uint64_t*>(arena + exchange.gate.done) +
         source * GpuGateLayout::kDoneWords + word;
}

__device__ __forceinline__ bool is_stopped(const ExchangeView& exchange) {
  return *reinterpret_cast<volatile std::uint32_t*>(&exchange.state->is_aborted) != 0;
}

// Nothing may be moved: a fault, or the operation at hand was refused.
__device__ __forceinline__ bool is_idle(const ExchangeView& exchange) {
  return is_stopped(exchange) ||
         *reinterpret_cast<volatile std::uint32_t*>(&exchange.state->is_refused) != 0;
}

// What is rarely needed stays out of line: a kernel's code is fetched anew at every launch.

// The first fault goes to the host; every later one only stops.
static __device__ __noinline__ void report_fault(const ExchangeView& exchange,
                                                 const GateFault& fault) {
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

// A wait that has lasted longer than a few polls.
struct Patience {
  std::uint64_t start;
  std::uint64_t deadline_ns;
  GateFault fault;  // what giving up means
  bool keeps_books;
  bool is_noted;
};

// Tells the host, the peer's mailbox entry being one that only this lane writes.
__device__ inline void note_wait(const ExchangeView& exchange,
                                 Patience& patience,
                                 bool is_waiting) {
  patience.is_noted = is_waiting;
  *reinterpret_cast<volatile std::uint32_t*>(&exchange.mailbox->waits_for[patience.fault.peer]) =
      is_waiting ? 1 : 0;
}

// False: a fault.
static __device__ __noinline__ bool may_wait_longer(const ExchangeView& exchange,
                                                    Patience& patience) {
  if (is_stopped(exchange)) return false;
  if (load_relaxed(&exchange.mailbox->abort) != 0) {
    atomicExch(&exchange.state->is_aborted, 1U);
    return false;
  }
  const std::uint64_t waited = now_ns() - patience.start;
  if (waited > 100000) {  // far beyond an ordinary wait: leave the memory alone
    if (patience.keeps_books && !patience.is_noted) note_wait(exchange, patience, true);
    __nanosleep(500);
  }
  if (waited <= patience.deadline_ns) return true;
  patience.fault.waited_ns = waited;
  report_fault(exchange, patience.fault);
  return false;
}

static __device__ __noinline__ void end_wait(const ExchangeView& exchange, Patience& patience) {
  if (patience.keeps_books && patience.fault.peer != exchange.rank)
    count_wait(exchange, patience.fault.peer, now_ns() - patience.start);
  if (patience.is_noted) note_wait(exchange, patience, false);
}

// One lane: polls this rank's own arena until `has_arrived(seen)`, which notes what it saw. False:
// a fault. Where several lanes wait for the same peer, one keeps the books.
template <typename HasArrived>
__device__ __forceinline__ bool wait_until(const ExchangeView& exchange,
                                           const HasArrived& has_arrived,
                                           std::uint64_t deadline_ns,
                                           const GateFault& fault,
                                           bool keeps_books) {
  std::uint64_t seen = 0;
  if (has_arrived(seen)) return true;
  Patience patience{now_ns(), deadline_ns, fault, keeps_books, false};
#pragma unroll 1
  for (std::uint32_t round = 1; !has_arrived(seen); ++round) {
    if (round % 64 != 0) continue;
    patience.fault.seen = seen;
    if (!may_wait_longer(exchange, patience)) return false;
  }
  end_wait(exchange, patience);
  return true;
}

// Compares what everybody said with rank 0 (whole block; `first_odd` in shared memory becomes the
// lowest rank that differs, or num_ranks).
static __device__ __noinline__ void compare_shapes(const ExchangeView& exchange,
                                                   std::uint64_t sequence,
                                                   int* first_odd) {
  const HeardSlot& reference = said_by(exchange, sequence, 0);
  for (int i = static_cast<int>(threadIdx.x); i < exchange.num_ranks * GateSlot::kShapeWords;
       i += static_cast<int>(blockDim.x)) {
    const int peer = i / GateSlot::kShapeWords;
    const int word = GateSlot::kShape + i % GateSlot::kShapeWords;
    if (heard(said_by(exchange, sequence, peer), word) != heard(reference, word))
      atomicMin(first_odd, peer);
  }
}

// Notes why the operation is refused: `rank` said so, or differs from rank 0. Whole block.
static __device__ __noinline__ void note_refusal(const ExchangeView& exchange,
                                                 const GateArgs& args,
                                                 std::uint64_t sequence,
                                                 int rank) {
  Refusal& refusal = *args.refusal;
  const HeardSlot& said = said_by(exchange, sequence, rank);
  const HeardSlot& reference = said_by(exchange, sequence, 0);
  const char* text =
      reinterpret_cast<const char*>(exchange.peer_base[rank] + exchange.gate.error_text +
                                    (sequence % HeardSlot::kRing) * GpuGateLayout::kErrorTextBytes);
  for (int i = static_cast<int>(threadIdx.x); i < GpuGateLayout::kErrorTextBytes;
       i += static_cast<int>(blockDim.x))
    refusal.text[i] = *reinterpret_cast<const volatile char*>(text + i);
  if (threadIdx.x < GateSlot::kShapeWords) {
    const int word = GateSlot::kShape + static_cast<int>(threadIdx.x);
    refusal.reference[threadIdx.x] = heard(reference, word);
    refusal.other[threadIdx.x] = heard(said, word);
  }
  if (threadIdx.x == 0) {
    refusal.rank = rank;
    refusal.code = static_cast<std::int32_t>(heard(said, GateSlot::kErrorCode));
    refusal.sequence = sequence;
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0 && args.num_refused != nullptr) {  // pairs with the host's acquire load
    auto* num_refused = reinterpret_cast<volatile std::uint32_t*>(args.num_refused);
    *num_refused = *num_refused + 1;
  }
}

// A block's view of an opening gate, in shared memory.
struct Meeting {
  static constexpr int kFirstGrant = GateSlot::kRowsOffset;
  static constexpr int kGrants = GateSlot::kCopyOffset + 1 - kFirstGrant;

  std::uint64_t words[GateSlot::kWords];      // what this rank says
  std::uint64_t grants[kMostPeers][kGrants];  // what the peers say
  std::uint64_t bases[kMostPeers];            // of their arenas
  int first_refusing;                         // the lowest rank with an unusable argument
  int first_odd;                              // the lowest whose shape is not rank 0's
  int has_difference;
  int has_failed;
  int is_stopped;
  int has_route_error;  // the operation follows a route with an error
};

// What a block has heard there.
struct Verdict {
  bool has_failed;       // a fault; nothing may follow
  int refusing;          // the rank for which everybody refuses the operation, or num_ranks
  bool has_route_error;  // the operation follows a route with an error

  __device__ bool is_refused(const ExchangeView& exchange) const {
    return refusing < exchange.num_ranks || has_route_error;
  }
};

// What can be read ahead. Whole block; a barrier must follow.
__device__ inline void prepare_meeting(const ExchangeView& exchange,
                                       const GateArgs& args,
                                       Meeting& meeting) {
  for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
       peer += static_cast<int>(blockDim.x))
    meeting.bases[peer] = exchange.peer_base[peer];
  if (threadIdx.x < GateSlot::kWords) meeting.words[threadIdx.x] = args.slot.words[threadIdx.x];
  if (threadIdx.x != 0) return;
  meeting.first_refusing = exchange.num_ranks;
  meeting.first_odd = exchange.num_ranks;
  meeting.has_difference = 0;
  meeting.has_failed = 0;
  meeting.is_stopped = is_stopped(exchange) ? 1 : 0;
  meeting.has_route_error =
      args.route_error == nullptr
          ? 0
          : static_cast<int>(*reinterpret_cast<const volatile std::uint32_t*>(args.route_error));
}

// Publishes this rank's words, which validate themselves. Whole block, of one block. What the block
// has stored must lie behind a fence; stores of earlier kernels are complete.
__device__ inline void say(const ExchangeView& exchange,
                           const GateSlot& own,
                           std::uint64_t sequence) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= GateSlot::kWords) return;
  const std::uint64_t word = lane == GateSlot::kSequence ? sequence : own.words[lane];
  const std::uint64_t tag = std::uint64_t{tag_of(sequence)} << 32;
  for (int peer = static_cast<int>(threadIdx.x) / 32; peer < exchange.num_ranks;
       peer += static_cast<int>(blockDim.x) / 32)
    store_relaxed(
        &slot_of(exchange, exchange.peer_base[peer], sequence, exchange.rank)->words[lane],
        {tag | (word & 0xFFFFFFFFU), tag | word >> 32});
}

// Waits for everybody's words, a lane for each, and compares shapes. Whole block, behind
// prepare_meeting() and a barrier.
__device__ inline Verdict hear(const ExchangeView& exchange,
                               Meeting& meeting,
                               std::uint64_t sequence) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t operation = operation_of(&meeting.words[GateSlot::kShape]);
  for (int peer = static_cast<int>(threadIdx.x) / 32;
       peer < exchange.num_ranks && lane < GateSlot::kWords;
       peer += static_cast<int>(blockDim.x) / 32) {
    const HeardSlot::Word* word = &said_by(exchange, sequence, peer).words[lane];
    std::uint64_t theirs = 0;
    const auto has_arrived = [&](std::uint64_t& seen) {
      // Pairs with what precedes say(): what the peer did before is known from here on.
      const HeardSlot::Word now = load_acquire(word);
      theirs = value_of(now);
      seen = now.low >> 32;
      return now.low >> 32 == tag_of(sequence) && now.high >> 32 == tag_of(sequence);
    };
    const GateFault late{GateFault::kLate, peer, operation, 0, sequence, 0, 0};
    if (!wait_until(exchange, has_arrived, exchange.arrival_ns, late,
                    blockIdx.x == 0 && lane == 0)) {
      meeting.has_failed = 1;
      continue;
    }
    if (lane >= Meeting::kFirstGrant && lane < Meeting::kFirstGrant + Meeting::kGrants)
      meeting.grants[peer][lane - Meeting::kFirstGrant] = theirs;
    if (lane == GateSlot::kShape && operation_of(&theirs) != operation) {
      report_fault(exchange, {GateFault::kDiffers, peer, operation, operation_of(&theirs), sequence,
                              sequence, 0});
      meeting.has_failed = 1;
    }
    if (lane >= GateSlot::kShape && lane < GateSlot::kShape + GateSlot::kShapeWords &&
        theirs != meeting.words[lane])
      meeting.has_difference = 1;
    if (lane == GateSlot::kErrorCode && theirs != 0) atomicMin(&meeting.first_refusing, peer);
  }
  __syncthreads();
  if (meeting.has_failed != 0) return {true, exchange.num_ranks, false};
  // Along a route with an error, which is the same on every rank, nothing else is worth telling.
  const bool has_route_error = meeting.has_route_error != 0;
  if (meeting.has_difference != 0 && !has_route_error) {
    compare_shapes(exchange, sequence, &meeting.first_odd);
    __syncthreads();
  }
  // An unusable argument explains a difference, not the other way round.
  const int refusing =
      meeting.first_refusing < exchange.num_ranks ? meeting.first_refusing : meeting.first_odd;
  return {false, refusing, has_route_error};
}

// One thread: what later kernels read of the operation whose gate has passed.
__device__ inline void enter_operation(const ExchangeView& exchange,
                                       const GateArgs& args,
                                       const Verdict& verdict,
                                       std::uint64_t sequence) {
  DeviceState& state = *exchange.state;
  state.sequence = sequence;
  state.sequence_of[args.operation_slot] = sequence;
  state.next_piece = 0;
  if (args.is_staged != 0) state.last_staged = sequence;
  state.is_refused = verdict.is_refused(exchange) ? 1 : 0;
}

// Opening gate: publishes this rank's words, waits for everybody's, compares shapes, notes
// refusals. Whole block, of one block. False: a fault; nothing may follow. `is_refused`, where
// given, tells why it is idle.
__device__ inline bool pass_gate(const ExchangeView& exchange,
                                 const GateArgs& args,
                                 bool* is_refused = nullptr) {
  __shared__ Meeting meeting;
  const std::uint64_t sequence = exchange.state->sequence + 1;
  fence_system();  // the block's earlier stores: counts of a route
  prepare_meeting(exchange, args, meeting);
  __syncthreads();
  if (meeting.is_stopped != 0) return false;
  say(exchange, args.slot, sequence);
  const Verdict verdict = hear(exchange, meeting, sequence);
  fence_proxy();
  if (verdict.has_failed) return false;
  const bool is_all_refused = verdict.refusing < exchange.num_ranks;
  if (is_all_refused) note_refusal(exchange, args, sequence, verdict.refusing);
  if (is_refused != nullptr) *is_refused = is_all_refused;
  if (threadIdx.x == 0) enter_operation(exchange, args, verdict, sequence);
  __syncthreads();
  return true;
}

// Says to every peer that one of `num_parts` parts of this rank's move is complete. Whole block;
// the part's stores come before this kernel, or before a barrier of this block.
__device__ inline void announce(const ExchangeView& exchange,
                                std::uint64_t sequence,
                                int part = 0,
                                int num_parts = 1) {
  const int words_per_peer = (GpuGateLayout::kDoneWords - part + num_parts - 1) / num_parts;
  const int num_words = exchange.num_ranks * words_per_peer;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= num_words) return;
  fence_system();  // pairs with the acquire of wait_done()
  for (int i = thread; i < num_words; i += static_cast<int>(blockDim.x))
    store_relaxed(done_word(exchange, exchange.peer_base[i / words_per_peer], exchange.rank,
                            part + i % words_per_peer * num_parts),
                  sequence);
}

// Ranks [first, end).
struct PeerRange {
  int first;
  int end;
};

// Waits until the peers' moves are complete. Whole block, of one block; a thread for each word.
__device__ inline void wait_done(const ExchangeView& exchange,
                                 std::uint64_t sequence,
                                 std::int32_t operation,
                                 PeerRange peers) {
  constexpr int kWords = GpuGateLayout::kDoneWords;
  for (int i = peers.first * kWords + static_cast<int>(threadIdx.x); i < peers.end * kWords;
       i += static_cast<int>(blockDim.x)) {
    const std::uint64_t* word = done_word(exchange, exchange.arena, i / kWords, i % kWords);
    const auto has_arrived = [&](std::uint64_t& seen) {
      seen = load_acquire(word);
      return seen >= sequence;
    };
    const GateFault stopped{GateFault::kStopped, i / kWords, operation, 0, sequence, 0, 0};
    if (!wait_until(exchange, has_arrived, exchange.progress_ns, stopped, i % kWords == 0)) break;
  }
  fence_proxy();
}

}  // namespace ferry::cuda
