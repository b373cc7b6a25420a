#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "boot/store.hpp"
#include "cuda/arena.hpp"
#include "cuda/device_state.hpp"
#include "cuda/kernels.hpp"
#include "cuda/plugin.hpp"
#include "cuda/residency.hpp"
#include "cuda/route_pool.hpp"
#include "engine/engine.hpp"
#include "memory/group_segments.hpp"
#include "plan/launch.hpp"

namespace ferry::cuda {

// A route whose entries lie in device memory.
struct DeviceRoute final : engine::RouteState {
  RouteView view{};
  RoutePool::Lease lease;
  bool is_reported = false;  // its error has been thrown
  // Rows of this rank's tokens, all and those that go to other ranks; exact once planned.
  struct SentRows {
    std::int64_t all = 0;
    std::int64_t wire = 0;

    void count(int destination, std::int64_t rows, int self) {
      all += rows;
      if (destination != self) wire += rows;
    }
  };
  SentRows sent;                     // one for each row of the layout
  SentRows sent_once;                // one for each (token, rank)
  std::int64_t num_copied_rows = 0;  // that this rank as a receiver copies when rows are sent once
};

// The CUDA engine of one rank. Every operation is gate, move, gate on the caller's stream; nothing
// blocks but finish_route(). Operations on several streams are chained by events.
class Engine final : public engine::Engine {
 public:
  // Collective: takes the GPU and the arenas. Not usable before start().
  explicit Engine(const EngineArgs& args);
  // Collective: the rest of the memory, the kernels and the watcher. Where one rank fails, all
  // throw.
  void start(std::chrono::milliseconds timeout);
  ~Engine() override;

  [[nodiscard]] std::shared_ptr<engine::RouteState> begin_route(
      const engine::RouteArgs& args) override;
  void finish_route(engine::RouteState& route) override;
  void begin_dispatch(engine::DispatchOperation& dispatch) override;
  void finish_dispatch(engine::DispatchOperation& dispatch) override;
  void begin_combine(engine::CombineOperation& combine) override;
  void finish_combine(engine::CombineOperation& combine) override;
  void agree(layout::Operation operation,
             std::uint64_t digest,
             const std::optional<Error>& error) override;
  void check_alive() override;
  void report_refusals() override;
  void set_arrival_timeout(std::chrono::milliseconds timeout) noexcept override;

  [[nodiscard]] std::byte* arena_base() const noexcept override { return arena_.base(); }
  [[nodiscard]] std::optional<std::int64_t> arena_offset(
      const void* pointer, std::int64_t bytes) const noexcept override {
    return arena_.offset_of(pointer, bytes);
  }
  [[nodiscard]] void* allocate(std::int64_t bytes) override { return arena_.allocate(bytes); }
  void deallocate(void* pointer) override { arena_.deallocate(pointer); }
  void retire_arena() noexcept override { arena_.retire(); }
  void poison_delivery(int slot) override;
  [[nodiscard]] Counters counters() const override;
  [[nodiscard]] std::vector<std::int64_t> wait_ns_by_peer() const override;

 private:
  [[nodiscard]] int rank() const noexcept { return store_.rank(); }
  [[nodiscard]] int num_ranks() const noexcept { return store_.size(); }

  // engine_start.cc
  void learn_neighbours(std::chrono::milliseconds timeout);
  void make_device_memory();
  void check_residency(std::chrono::milliseconds timeout);

  // faults.cc
  void watch();
  struct PeerWatch {
    std::optional<std::chrono::steady_clock::time_point> since;  // a gate waits for the peer
    bool was_gone = false;
    bool has_warned = false;
  };
  void watch_peers(std::vector<PeerWatch>& watches);
  void raise_device_fault();
  void raise_lost(int peer);
  [[nodiscard]] Error describe(const Refusal& refusal) const;

  // engine.cc
  void upload_owners(const plan::OwnerMap& owners, cudaStream_t stream);
  // Chains this operation behind the last one, and makes the device current. Refuses the legacy
  // stream among thread ranks.
  [[nodiscard]] cudaStream_t enter(StreamRef stream);
  [[nodiscard]] OpenGate make_gate(const layout::OperationShape& shape,
                                   const std::optional<Error>& error,
                                   std::uint64_t sequence,
                                   cudaStream_t stream);
  // Kernels move 16 bytes at a time.
  void check_aligned(const char* tensor, const std::byte* data, std::int64_t pitch) const;
  [[nodiscard]] plan::LaunchInput launch_input(std::int64_t num_tokens) const;
  // For kernels whose blocks announce themselves.
  [[nodiscard]] plan::LaunchInput at_once_input(std::int64_t num_tokens) const;
  [[nodiscard]] std::byte* delivery_part(int slot, std::int64_t part_offset) const noexcept {
    return arena_.base() + layout_.deliveries[slot] + part_offset;
  }
  void close(std::uint64_t sequence,
             layout::Operation operation,
             bool announces,
             bool waits,
             cudaStream_t stream);

  // route.cc
  [[nodiscard]] RouteView make_route_view(const engine::RouteArgs& args,
                                          const RoutePool::Lease& lease) const;
  void read_answer(DeviceRoute& route) const;
  [[nodiscard]] static bool is_answered(const DeviceRoute& route);
  void count_answered() const;
  void forget_good_routes();
  [[nodiscard]] std::optional<Error> answered_error(const DeviceRoute& route) const;

  // dispatch.cc
  [[nodiscard]] DispatchView dispatch_view(const engine::DispatchOperation& dispatch,
                                           const DeviceRoute& route) const;
  void enqueue_move(const DeviceRoute& route, const DispatchView& view, cudaStream_t stream);
  [[nodiscard]] bool is_at_once(const engine::DispatchOperation& dispatch,
                                const DispatchView& view) const;
  void dispatch_at_once(const engine::DispatchOperation& dispatch,
                        const DeviceRoute& route,
                        const DispatchView& view,
                        const OpenGate& gate,
                        cudaStream_t stream);
  [[nodiscard]] CompleteView complete_view(const engine::DispatchOperation& dispatch,
                                           const DeviceRoute& route) const;
  [[nodiscard]] bool is_expanded(const engine::DispatchOperation& dispatch) const;
  void expand_rows(const engine::DispatchOperation& dispatch, cudaStream_t stream);
  void copy_to_caller(const engine::DispatchOperation& dispatch, cudaStream_t stream);
  [[nodiscard]] std::byte* rows_of(const engine::DispatchOperation& dispatch) const;
  void count_dispatch(const engine::DispatchOperation& dispatch) const;

  // combine.cc
  [[nodiscard]] std::int64_t offer_rows(const engine::CombineOperation& combine,
                                        const DeviceRoute& route,
                                        cudaStream_t stream);
  void enqueue_sums(const engine::CombineOperation& combine,
                    const DeviceRoute& route,
                    cudaStream_t stream);
  void combine_at_once(const engine::CombineOperation& combine,
                       const DeviceRoute& route,
                       const OpenGate& gate,
                       cudaStream_t stream);
  void offer_row_weights(const engine::CombineOperation& combine,
                         const DeviceRoute& route,
                         cudaStream_t stream);
  void count_combine(const engine::CombineOperation& combine) const;

  boot::Store& store_;
  memory::GroupSegments& segments_;
  layout::ArenaLayout layout_;
  engine::EngineConfig config_;
  int device_;
  std::string gpu_id_;  // the same in every process
  int num_sms_ = 0;
  std::int64_t shared_bytes_ = 0;
  bool has_bulk_copy_ = false;
  int ranks_on_gpu_ = 1;
  bool expands_ =
      false;  // a row for several local experts crosses a link once; the same everywhere
  bool has_thread_ranks_ = false;
  // Low latency: blocks that wait for peers are all on the GPU at once.
  bool has_resident_blocks_ = false;
  WaitingBlocks waiting_blocks_;

  cudaStream_t own_stream_ = nullptr;  // of memory that this engine takes and gives back
  Arena arena_;
  std::byte* device_memory_ = nullptr;  // state, peers' bases, owner maps
  ExchangeView view_{};
  const std::uint32_t* owners_ = nullptr;  // [E] of the newest routes' map, on the device
  std::shared_ptr<const plan::OwnerMap> uploaded_owners_;
  std::unique_ptr<RoutePool> routes_;
  HostMailbox* mailbox_ = nullptr;  // pinned
  char* error_text_ = nullptr;      // pinned, the text that a header announces
  std::uint32_t* pinned_owners_ = nullptr;

  std::uint64_t sequence_ = 0;  // operations enqueued here
  std::uint64_t ticket_ = 0;
  cudaEvent_t chain_ = nullptr;
  std::optional<cudaStream_t> last_stream_;
  std::uint32_t num_reported_refusals_ = 0;
  // Worst-case routes that the device has not answered, or whose error nobody has heard of.
  std::vector<std::shared_ptr<DeviceRoute>> unreported_routes_;
  // Bytes of worst-case operations are known once the device has answered their routes.
  struct Uncounted {
    std::shared_ptr<DeviceRoute> route;
    engine::DispatchOperation dispatch;  // one of the two has a route
    engine::CombineOperation combine;
  };
  mutable std::vector<Uncounted> uncounted_;
  mutable Counters counters_;

  std::atomic<bool> is_watching_{true};
  std::thread watcher_;
};

}  // namespace ferry::cuda
