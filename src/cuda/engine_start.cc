// An engine's beginning and end: the GPU, the arenas, what it knows of its neighbours, its memory.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "boot/agree.hpp"
#include "cuda/check.hpp"
#include "cuda/driver.hpp"
#include "cuda/engine.hpp"
#include "layout/layout_builder.hpp"

namespace ferry::cuda {

namespace {

constexpr std::chrono::milliseconds kBusyPeriod{2};
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
  const auto told = store_.all_gather(
      "exchange creation: waiting blocks",
      tell_waiting_blocks(gpu_id_, std::to_string(::getpid()), WaitingBlocks::on_device(device_)),
      timeout);
  const int total = sum_waiting_blocks(gpu_id_, told);
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
    std::this_thread::sleep_for(kBusyPeriod);
  if (mailbox_ != nullptr) __atomic_store_n(&mailbox_->abort, 1U, __ATOMIC_RELEASE);
  while (is_busy() && std::chrono::steady_clock::now() < deadline + config_.deadlines.progress)
    std::this_thread::sleep_for(kBusyPeriod);
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

void Engine::set_arrival_timeout(std::chrono::milliseconds timeout) noexcept {
  view_.arrival_ns = as_ns(timeout.count() > 0 ? timeout : config_.deadlines.arrival);
}

}  // namespace ferry::cuda
