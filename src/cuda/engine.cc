#include "cuda/engine.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "base/log.hpp"
#include "boot/agree.hpp"
#include "cuda/check.hpp"
#include "cuda/driver.hpp"
#include "layout/layout_builder.hpp"

namespace ferry::cuda {

using layout::GateSlot;
using layout::Operation;
using layout::OperationShape;

namespace {

constexpr std::chrono::milliseconds kWatchPeriod{2};
// Of state, peers' bases and owners in one piece of device memory.
constexpr std::int64_t kAlignment = 256;

void open_device(const Device& device) {
  (void)driver();
  int num_devices = 0;
  check(cudaGetDeviceCount(&num_devices), "counting GPUs");
  FERRY_CHECK(device.index >= 0 && device.index < num_devices, ErrorCode::kInvalidArgument,
              "device cuda:{} does not exist, this host has {} GPUs", device.index, num_devices);
  check(cudaSetDevice(device.index), "choosing the GPU");
  check(cudaFree(nullptr), "starting on the GPU");
}

// Collective: a rank without its GPU tells the others.
int open_device_together(const EngineArgs& args) {
  const std::optional<Error> failure = capture_error([&] { open_device(args.config.device); });
  boot::throw_together(args.store, "exchange creation: GPU", with_rank(failure, args.store.rank()),
                       args.meeting_timeout);
  return args.config.device.index;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "reading a GPU's attribute");
  return value;
}

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}

std::uint64_t as_ns(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

template <typename Value>
Value load_acquire(const Value& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

std::vector<std::uint32_t> home_of_experts(const plan::OwnerMap& owners) {
  std::vector<std::uint32_t> home;
  for (std::size_t expert = 0; expert < owners.rank_of.size(); ++expert)
    home.push_back(static_cast<std::uint32_t>(owners.rank_of[expert]) << 16 |
                   static_cast<std::uint32_t>(owners.local_id_of[expert]));
  return home;
}

}  // namespace

Engine::Engine(const EngineArgs& args)
    : store_(args.store),
      segments_(args.segments),
      layout_(args.layout),
      config_(args.config),
      device_(open_device_together(args)),
      arena_(Arena::open(args.store, args.layout, device_, args.meeting_timeout)) {}

void Engine::start(std::chrono::milliseconds timeout) {
  FERRY_CHECK(num_ranks() <= kMostPeers, ErrorCode::kUnavailable,
              "{} ranks on one node, the CUDA engine is made for {}", num_ranks(), kMostPeers);
  learn_neighbours(timeout);
  const std::optional<Error> failure = capture_error([&] {
    num_sms_ = attribute(cudaDevAttrMultiProcessorCount, device_);
    has_bulk_copy_ = attribute(cudaDevAttrComputeCapabilityMajor, device_) >= 9;
    // What the move kernel keeps in static shared memory is not for rows.
    shared_bytes_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device_) - 8 * 1024;
    own_stream_ = make_stream();
    make_device_memory();
    check(prepare_kernels(static_cast<int>(shared_bytes_)), "loading kernels");
    check(cudaEventCreateWithFlags(&chain_, cudaEventDisableTiming), "making an event");
  });
  // Everything is loaded and zeroed before the first peer can write here or wait.
  boot::throw_together(store_, "exchange creation: GPU engine", with_rank(failure, rank()),
                       timeout);
  check_residency(timeout);
  set_arrival_timeout({});
  view_.progress_ns = as_ns(config_.deadlines.progress);
  watcher_ = std::thread([this] { watch(); });
}

void Engine::learn_neighbours(std::chrono::milliseconds timeout) {
  cudaDeviceProp properties{};
  boot::throw_together(store_, "exchange creation: properties",
                       with_rank(capture_error([&] {
                                   check(cudaGetDeviceProperties(&properties, device_),
                                         "reading the GPU's properties");
                                 }),
                                 rank()),
                       timeout);
  gpu_id_.assign(properties.uuid.bytes, sizeof(properties.uuid.bytes));
  const std::string process = std::to_string(::getpid());
  const auto gpus = store_.all_gather("exchange creation: GPUs", gpu_id_, timeout);
  const auto processes = store_.all_gather("exchange creation: processes", process, timeout);
  const std::string wish = !config_.expands ? "" : *config_.expands ? "1" : "0";
  const auto wishes = store_.all_gather("exchange creation: expand", wish, timeout);
  const auto is_wished = [&](const char* what) {
    return std::find(wishes.begin(), wishes.end(), what) != wishes.end();
  };
  ranks_on_gpu_ = static_cast<int>(std::count(gpus.begin(), gpus.end(), gpu_id_));
  // On a shared card memory is the link.
  expands_ = is_wished("1") || (!is_wished("0") && ranks_on_gpu_ < num_ranks());
  has_thread_ranks_ = std::count(processes.begin(), processes.end(), process) > 1;
}

// Whether low-latency operations may wait in all their blocks: those of all exchanges of all ranks
// on this GPU must fit, one to a multiprocessor. Where not, gates of one block do the waiting;
// ranks may differ. A number of multiprocessors that was asked for and does not fit is refused.
void Engine::check_residency(std::chrono::milliseconds timeout) {
  if (config_.mode != Mode::kLowLatency) return;
  const int own =
      plan::pick_team_launch(at_once_input(config_.max_tokens), LowLatencyLaunch::kMostTeams)
          .num_blocks;
  waiting_blocks_ = WaitingBlocks(device_, own);
  (void)store_.all_gather("exchange creation: own waiting blocks", "", timeout);
  const auto counts = store_.all_gather("exchange creation: waiting blocks",
                                        gpu_id_ + "/" + std::to_string(::getpid()) + "/" +
                                            std::to_string(WaitingBlocks::on_device(device_)),
                                        timeout);
  // Ranks that are threads of one process tell the same.
  const std::set<std::string> processes(counts.begin(), counts.end());
  int total = 0;
  for (const std::string& process : processes)
    if (process.starts_with(gpu_id_ + "/"))
      total += std::stoi(process.substr(process.rfind('/') + 1));
  has_resident_blocks_ = total <= num_sms_;
  if (!has_resident_blocks_) waiting_blocks_ = {};
  const std::optional<Error> failure = capture_error([&] {
    FERRY_CHECK(has_resident_blocks_ || config_.num_sms == 0, ErrorCode::kNoResource,
                "low latency with num_sms {} has {} waiting blocks of all exchanges and ranks on "
                "one GPU, its {} multiprocessors hold one each; try: num_sms {}, or 0",
                config_.num_sms, total, num_sms_, std::max(1, num_sms_ / ranks_on_gpu_));
  });
  boot::throw_together(store_, "exchange creation: residency", with_rank(failure, rank()), timeout);
}

void Engine::make_device_memory() {
  layout::LayoutBuilder ranges;
  const std::int64_t state = ranges.take(sizeof(DeviceState), kAlignment);
  const std::int64_t bases = ranges.take(num_ranks() * 8, kAlignment);
  const std::int64_t owners = ranges.take(std::int64_t{config_.num_experts} * 4, kAlignment);
  const auto bytes = static_cast<std::size_t>(ranges.bytes(kAlignment));
  check(cudaMallocAsync(reinterpret_cast<void**>(&device_memory_), bytes, own_stream_),
        "device memory of the engine");
  check(cudaMemsetAsync(device_memory_, 0, bytes, own_stream_), "clearing device memory");
  // Gate words start at zero: no operation has been reached.
  check(cudaMemsetAsync(arena_.base() + layout_.control, 0,
                        static_cast<std::size_t>(layout_.deliveries[0] - layout_.control),
                        own_stream_),
        "clearing the arena's gates");
  std::vector<std::uint64_t> addresses;
  for (int peer = 0; peer < num_ranks(); ++peer) addresses.push_back(arena_.base_of(peer));
  check(cudaMemcpyAsync(device_memory_ + bases, addresses.data(), addresses.size() * 8,
                        cudaMemcpyHostToDevice, own_stream_),
        "copying the peers' addresses");
  check(cudaHostAlloc(reinterpret_cast<void**>(&mailbox_), sizeof(HostMailbox),
                      cudaHostAllocPortable),
        "pinned memory");
  std::memset(mailbox_, 0, sizeof(HostMailbox));
  check(cudaHostAlloc(reinterpret_cast<void**>(&error_text_),
                      layout::GpuGateLayout::kErrorTextBytes, cudaHostAllocPortable),
        "pinned memory");
  check(cudaHostAlloc(reinterpret_cast<void**>(&pinned_owners_),
                      static_cast<std::size_t>(config_.num_experts) * 4, cudaHostAllocPortable),
        "pinned memory");
  routes_ = std::make_unique<RoutePool>(
      RoutePool::Shape{config_.max_tokens, config_.top_k, config_.num_experts, num_ranks()},
      own_stream_);
  check(cudaStreamSynchronize(own_stream_), "setting device memory up");

  view_.peer_base = reinterpret_cast<const std::uint64_t*>(device_memory_ + bases);
  view_.arena = arena_.base_of(rank());
  view_.gate = layout_.gpu_gate;
  view_.state = reinterpret_cast<DeviceState*>(device_memory_ + state);
  view_.mailbox = mailbox_;
  view_.rank = rank();
  view_.num_ranks = num_ranks();
  view_.num_experts = config_.num_experts;
  view_.top_k = config_.top_k;
  owners_ = reinterpret_cast<const std::uint32_t*>(device_memory_ + owners);
}

Engine::~Engine() {
  // Kernels that still wait for a peer end by the abort word, not by luck.
  cudaSetDevice(device_);
  const auto deadline = std::chrono::steady_clock::now() + config_.deadlines.progress;
  const auto is_busy = [&] {
    return last_stream_ && cudaStreamQuery(*last_stream_) == cudaErrorNotReady;
  };
  while (is_busy() && !segments_.has_fault() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kWatchPeriod);
  if (mailbox_ != nullptr) __atomic_store_n(&mailbox_->abort, 1U, __ATOMIC_RELEASE);
  while (is_busy() && std::chrono::steady_clock::now() < deadline + config_.deadlines.progress)
    std::this_thread::sleep_for(kWatchPeriod);
  is_watching_ = false;
  if (watcher_.joinable()) watcher_.join();
  if (is_busy()) {
    // Something else holds the stream: giving memory back under running kernels would be worse.
    FERRY_WARN("cuda", "rank {}: the stream is still busy, the arena's memory is not given back",
               rank());
    arena_.leak();
    return;
  }
  routes_.reset();
  if (device_memory_ != nullptr) cudaFreeAsync(device_memory_, own_stream_);
  if (own_stream_ != nullptr) {
    cudaStreamSynchronize(own_stream_);
    cudaStreamDestroy(own_stream_);
  }
  if (chain_ != nullptr) cudaEventDestroy(chain_);
  if (mailbox_ != nullptr) cudaFreeHost(mailbox_);
  if (error_text_ != nullptr) cudaFreeHost(error_text_);
  if (pinned_owners_ != nullptr) cudaFreeHost(pinned_owners_);
}

// --- faults ------------------------------------------------------------------------------------

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

void Engine::set_arrival_timeout(std::chrono::milliseconds timeout) noexcept {
  view_.arrival_ns = as_ns(timeout.count() > 0 ? timeout : config_.deadlines.arrival);
}

// --- operations --------------------------------------------------------------------------------

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
