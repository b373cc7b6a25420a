// Faults between the group, which lives in host memory, and this rank's kernels; refusals that a
// device finds.
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "cuda/engine.hpp"

namespace ferry::cuda {

using layout::Operation;
using layout::OperationShape;

namespace {

constexpr std::chrono::milliseconds kWatchPeriod{2};

template <typename Value>
Value load_acquire(const Value& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

}  // namespace

// Carries faults between the group (host memory, all ranks) and this rank's kernels.
void Engine::watch() {
  std::vector<PeerWatch> watches(static_cast<std::size_t>(num_ranks()));
  while (is_watching_) {
    if (load_acquire(mailbox_->has_fault) != 0 && !segments_.has_fault()) raise_device_fault();
    watch_peers(watches);
    if (segments_.has_fault()) __atomic_store_n(&mailbox_->abort, 1U, __ATOMIC_RELEASE);
    std::this_thread::sleep_for(kWatchPeriod);
  }
}

// A peer for which a gate waits: gone, which is a fault, or late, which is worth one warning. A
// peer stored its words before it said goodbye, so a second look decides.
void Engine::watch_peers(std::vector<PeerWatch>& watches) {
  const auto now = std::chrono::steady_clock::now();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    PeerWatch& watch = watches[static_cast<std::size_t>(peer)];
    if (load_acquire(mailbox_->waits_for[peer]) == 0) {
      watch = {};
      continue;
    }
    if (!watch.since) watch.since = now;
    const bool is_gone = store_.peer_state(peer) != boot::PeerState::kAlive;
    if (is_gone && watch.was_gone) raise_lost(peer);
    watch.was_gone = is_gone;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - *watch.since);
    if (waited <= config_.deadlines.late_warning || watch.has_warned) continue;
    watch.has_warned = true;
    FERRY_WARN("cuda.gate", "rank {} has waited {} ms for rank {}", rank(), waited.count(), peer);
  }
}

void Engine::raise_device_fault() {
  const GateFault& fault = mailbox_->fault;
  const auto name = [](std::int32_t operation) {
    return layout::operation_name(Operation{operation});
  };
  const std::uint64_t waited_ms = fault.waited_ns / 1000000;
  switch (fault.kind) {
    case GateFault::kDiffers: {
      // In rank order, so that every rank names the same pair.
      const bool is_first = rank() < fault.peer;
      segments_.raise_fault(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "operation {} differs between ranks: rank {} calls {}, rank {} calls {}; every "
              "rank must issue the same operations in the same order",
              fault.sequence, is_first ? rank() : fault.peer,
              name(is_first ? fault.operation : fault.peer_operation),
              is_first ? fault.peer : rank(),
              name(is_first ? fault.peer_operation : fault.operation)));
      return;
    }
    case GateFault::kStopped:
      segments_.raise_fault(
          ErrorCode::kTimeout,
          fmt::format(
              "rank {} timed out after {} ms in {} (operation {}): rank {} stopped and failed "
              "to complete its move; expected {}, seen {}; try: look at rank {}, or raise "
              "FERRY_PROGRESS_TIMEOUT_MS",
              rank(), waited_ms, name(fault.operation), fault.sequence, fault.peer, fault.sequence,
              fault.seen, fault.peer));
      return;
    default:
      segments_.raise_fault(
          ErrorCode::kTimeout,
          fmt::format(
              "rank {} timed out after {} ms in {} (operation {}): rank {} is alive and "
              "failed to reach the operation; expected {}, seen {}; try: look at rank {}, or "
              "raise FERRY_TIMEOUT_MS",
              rank(), waited_ms, name(fault.operation), fault.sequence, fault.peer, fault.sequence,
              fault.seen, fault.peer));
  }
}

void Engine::check_alive() {
  if (load_acquire(mailbox_->has_fault) != 0 && !segments_.has_fault()) raise_device_fault();
  if (const auto fault = segments_.fault()) throw_error(fault->code(), fault->what());
  for (int peer = 0; peer < num_ranks(); ++peer)
    if (peer != rank() && store_.peer_state(peer) == boot::PeerState::kLeft) raise_lost(peer);
  if (const auto fault = segments_.fault()) throw_error(fault->code(), fault->what());
}

void Engine::raise_lost(int peer) {
  segments_.raise_fault(ErrorCode::kPeerLost,
                        store_.peer_state(peer) == boot::PeerState::kLeft
                            ? fmt::format("rank {} left the group", peer)
                            : fmt::format("rank {} was lost: its process ended", peer));
}

Error Engine::describe(const Refusal& refusal) const {
  if (refusal.code != 0) return Error(ErrorCode{refusal.code}, refusal.text);
  OperationShape reference;
  OperationShape other;
  std::memcpy(&reference, refusal.reference, sizeof(reference));
  std::memcpy(&other, refusal.other, sizeof(other));
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} (operation {}) differs between rank 0 and rank {}: {}",
                           layout::operation_name(Operation{reference.operation}), refusal.sequence,
                           refusal.rank, engine::first_difference(reference, other)));
}

// Invalid input that a device found, or another rank's host: every rank hears of it once.
void Engine::report_refusals() {
  if (load_acquire(mailbox_->has_fault) != 0 && !segments_.has_fault()) raise_device_fault();
  if (const auto fault = segments_.fault()) throw_error(fault->code(), fault->what());
  const std::uint32_t num_refused = load_acquire(mailbox_->num_refused);
  // What this rank threw itself is counted ahead of the device.
  if (static_cast<std::int32_t>(num_refused - num_reported_refusals_) > 0) {
    num_reported_refusals_ = num_refused;
    const Error error = describe(mailbox_->refusal);
    throw_error(error.code(), error.what());
  }
  forget_good_routes();
  for (const auto& route : unreported_routes_) {
    if (!route->error || route->is_reported) continue;
    route->is_reported = true;
    throw_error(route->error->code(), route->error->what());
  }
}

}  // namespace ferry::cuda
