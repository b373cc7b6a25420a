// Operations, what all of them share: the stream they run on, their gates, and agreements.
#include "cuda/engine.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "cuda/check.hpp"

namespace ferry::cuda {

using layout::GateSlot;
using layout::Operation;
using layout::OperationShape;

namespace {

std::vector<std::uint32_t> home_of_experts(const plan::OwnerMap& owners) {
  std::vector<std::uint32_t> home;
  for (std::size_t expert = 0; expert < owners.rank_of.size(); ++expert)
    home.push_back(static_cast<std::uint32_t>(owners.rank_of[expert]) << 16 |
                   static_cast<std::uint32_t>(owners.local_id_of[expert]));
  return home;
}

}  // namespace

cudaStream_t Engine::enter(StreamRef stream) {
  check(cudaSetDevice(device_), "choosing the GPU");
  auto handle = static_cast<cudaStream_t>(stream.handle);
  // Thread ranks: the legacy stream would make them wait for each other, so "no stream" is the
  // calling thread's own default stream.
  if (handle == nullptr && has_thread_ranks_) handle = cudaStreamPerThread;
  FERRY_CHECK(
      !has_thread_ranks_ || handle != cudaStreamLegacy, ErrorCode::kInvalidArgument,
      "rank {}: ranks that are threads of one process cannot use the legacy default stream, "
      "on which they would wait for each other; try: a stream made non-blocking",
      rank());
  if (last_stream_ && *last_stream_ != handle) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(handle, &status), "asking for a capture");
    // A capture cannot wait for what lies outside it: its replays are ordered by the caller.
    if (status == cudaStreamCaptureStatusNone) {
      check(cudaEventRecord(chain_, *last_stream_), "chaining operations");
      check(cudaStreamWaitEvent(handle, chain_, 0), "chaining operations");
    }
  }
  last_stream_ = handle;
  return handle;
}

OpenGate Engine::make_gate(const OperationShape& shape,
                           const std::optional<Error>& error,
                           std::uint64_t sequence,
                           cudaStream_t stream) {
  OpenGate gate{};
  std::memcpy(&gate.slot.words[GateSlot::kShape], &shape, sizeof(shape));
  gate.operation_slot = static_cast<int>(sequence % kOperationSlots);
  if (!error) return gate;
  // The caller throws it now: what the device notes of it is no news.
  ++num_reported_refusals_;
  gate.slot.words[GateSlot::kErrorCode] = static_cast<std::uint64_t>(error->code());
  const std::size_t length =
      std::min<std::size_t>(std::strlen(error->what()), layout::GpuGateLayout::kErrorTextBytes - 1);
  std::memset(error_text_, 0, layout::GpuGateLayout::kErrorTextBytes);
  std::memcpy(error_text_, error->what(), length);
  // Both places of the ring: which one the device draws is not known here.
  for (int place = 0; place < layout::HeardSlot::kRing; ++place)
    check(cudaMemcpyAsync(arena_.base() + layout_.gpu_gate.error_text +
                              place * layout::GpuGateLayout::kErrorTextBytes,
                          error_text_, layout::GpuGateLayout::kErrorTextBytes,
                          cudaMemcpyHostToDevice, stream),
          "telling the peers of an error");
  return gate;
}

void Engine::close(
    std::uint64_t sequence, Operation operation, bool announces, bool waits, cudaStream_t stream) {
  const CloseGate gate{static_cast<int>(sequence % kOperationSlots), announces ? 1 : 0,
                       waits ? 1 : 0, static_cast<std::int32_t>(operation)};
  check(launch_close_gate(view_, gate, stream), "closing an operation");
}

void Engine::upload_owners(const plan::OwnerMap& owners, cudaStream_t stream) {
  // Older routes have resolved their owners already. Pinned memory: a copy from pageable memory may
  // hold the driver's lock while the stream waits for a peer that needs it. The copy before this
  // one is done, since set_owner_map() waits.
  const std::vector<std::uint32_t> home = home_of_experts(owners);
  std::memcpy(pinned_owners_, home.data(), home.size() * 4);
  check(cudaMemcpyAsync(const_cast<std::uint32_t*>(owners_), pinned_owners_, home.size() * 4,
                        cudaMemcpyHostToDevice, stream),
        "copying the owner map");
}

void Engine::agree(Operation operation, std::uint64_t digest, const std::optional<Error>& error) {
  const cudaStream_t stream =
      enter(last_stream_ ? StreamRef{*last_stream_} : StreamRef{own_stream_});
  OperationShape shape;
  shape.operation = static_cast<std::int32_t>(operation);
  shape.digest = digest;
  const std::uint64_t sequence = ++sequence_;
  check(launch_open_gate(view_, make_gate(shape, error, sequence, stream), stream),
        "meeting the other ranks");
  close(sequence, operation, true, true, stream);
  if (error) throw_error(error->code(), error->what());
  // The caller's map changes only when everybody agreed, so this waits on the host.
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (segments_.has_fault()) break;
    std::this_thread::yield();
  }
  check_alive();
  report_refusals();
}

void Engine::check_aligned(const char* tensor, const std::byte* data, std::int64_t pitch) const {
  FERRY_CHECK(
      reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && pitch % 16 == 0,
      ErrorCode::kInvalidArgument,
      "rank {}: {} lies at {} with {} bytes between rows, expected multiples of 16 on a GPU",
      rank(), tensor, static_cast<const void*>(data), pitch);
}

plan::LaunchInput Engine::launch_input(std::int64_t num_tokens) const {
  plan::LaunchInput input;
  input.num_sms = num_sms_;
  input.ranks_on_gpu = ranks_on_gpu_;
  input.wanted_sms = config_.num_sms;
  input.num_tokens = num_tokens;
  input.shared_bytes = shared_bytes_;
  return input;
}

plan::LaunchInput Engine::at_once_input(std::int64_t num_tokens) const {
  plan::LaunchInput input = launch_input(num_tokens);
  input.most_blocks = layout::GpuGateLayout::kDoneWords;
  return input;
}

void Engine::poison_delivery(int slot) {
#ifndef NDEBUG
  if (!last_stream_) return;
  check(cudaMemsetAsync(delivery_part(slot, 0), 0xA5,
                        static_cast<std::size_t>(layout_.delivery.bytes), *last_stream_),
        "poisoning a delivery");
#else
  (void)slot;
#endif
}

Counters Engine::counters() const {
  count_answered();
  Counters out = counters_;
  out.arena_bytes = arena_.bytes();
  out.arena_peak_bytes = arena_.bytes();
  out.wait_ns_by_peer = wait_ns_by_peer();
  for (const std::int64_t waited : out.wait_ns_by_peer) out.wait_ns += waited;
  return out;
}

std::vector<std::int64_t> Engine::wait_ns_by_peer() const {
  std::vector<std::int64_t> out;
  for (int peer = 0; peer < num_ranks(); ++peer)
    out.push_back(
        static_cast<std::int64_t>(__atomic_load_n(&mailbox_->wait_ns[peer], __ATOMIC_RELAXED)));
  return out;
}

}  // namespace ferry::cuda
