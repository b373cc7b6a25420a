#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.hpp"
#include "exchange/exchange_plan.hpp"
#include "exchange/group_impl.hpp"
#include "ferry/exchange.hpp"

namespace ferry::detail {

class ExchangeImpl;

// A route of one exchange.
struct RouteImpl {
  std::weak_ptr<ExchangeImpl> exchange;
  std::shared_ptr<engine::RouteState> state;

  // Throws when the exchange is gone.
  [[nodiscard]] std::shared_ptr<ExchangeImpl> owner() const;
  void require_owner() const { (void)owner(); }
  // The same, and when the counts are not on the host.
  void require_exact(const char* what) const;
};

// What a dispatch delivered: views, valid while the slot's generation is this one's.
struct DeliveryImpl {
  std::weak_ptr<ExchangeImpl> exchange;
  int slot = 0;
  std::uint64_t generation = 0;
  TensorView tokens;
  TensorView scales;
  TensorView topk_idx;
  TensorView topk_weights;
  TensorView row_source;
  TensorView row_expert;
  TensorView num_rows;
  TensorView expert_counts;
  TensorView aligned_expert_counts;
  TensorView expert_offsets;
  TensorView source_offsets;

  // Throws when the exchange is gone or the slot has been reused.
  void check() const;
};

// One operation between begin and finish. Exactly one of the three is set.
struct PendingImpl {
  std::weak_ptr<ExchangeImpl> exchange;
  std::shared_ptr<RouteImpl> route;
  std::optional<engine::DispatchOperation> dispatch;
  DeliveryOutputs outputs;  // of the dispatch
  std::shared_ptr<DeliveryImpl> delivery;
  std::optional<engine::CombineOperation> combine;
  bool is_finished = false;
  bool is_completed = false;   // before finish() was called: see make_room()
  std::optional<Error> error;  // of an early completion; finish() throws it
};

// The facade behind Exchange: arguments, handles, the ring of deliveries and what is outstanding.
// Used by one thread.
class ExchangeImpl : public std::enable_shared_from_this<ExchangeImpl> {
 public:
  static constexpr std::size_t kMostOutstanding = 3;

  ExchangeImpl(std::shared_ptr<GroupImpl> group, const ExchangeConfig& config);

  std::shared_ptr<PendingImpl> begin_route(const TensorView& topk_idx, const RouteOptions& options, StreamRef stream);
  std::shared_ptr<PendingImpl> begin_dispatch(const Route& route,
                                              const TensorView& x,
                                              const DispatchOptions& options,
                                              StreamRef stream,
                                              bool is_split);
  std::shared_ptr<PendingImpl> begin_combine(const Route& route,
                                             const TensorView& y,
                                             const TensorView& out,
                                             const CombineOptions& options,
                                             StreamRef stream,
                                             bool is_split);
  // Completes an operation; a second call does nothing.
  void finish(PendingImpl& pending);

  void combine_weights(const Route& route,
                       const TensorView& row_weights,
                       const TensorView& combined_weights,
                       StreamRef stream);
  void post(const Route& route, const DeliveryOutputs& outputs);
  void set_owner_map(std::span<const int> expert_owner);

  void* allocate(std::int64_t bytes);
  void deallocate(void* pointer);
  void check() const;
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] const ExchangeConfig& config() const noexcept { return config_; }
  [[nodiscard]] int num_local_experts() const;
  void destroy() noexcept;

  // Throws kInvalidArgument after destroy().
  void require_alive() const;
  [[nodiscard]] std::uint64_t generation_of(int slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].generation;
  }

 private:
  struct Slot {
    std::uint64_t generation = 0;
    std::weak_ptr<DeliveryImpl> delivery;
  };

  // Runs before every operation: the exchange lives, the group lives, dropped operations are
  // finished, one more may be outstanding.
  void start_operation(std::chrono::milliseconds timeout);
  // Completes the oldest outstanding low-latency operations whose buffers the next one needs; their
  // finish() returns at once later. They stay outstanding, so their deliveries keep their memory.
  void make_room_for_dispatch();
  void make_room_for_combine();
  void complete(PendingImpl& pending);
  void complete_early(PendingImpl& pending);
  [[nodiscard]] std::shared_ptr<RouteImpl> own_route(const Route& route,
                                                     const char* operation) const;
  [[nodiscard]] int take_slot();
  // Runs part of an operation; after a fault of the group the arena is retired.
  template <typename Body>
  void run_guarded(const Body& body);
  // Adds the time waited since the last call to the route that was waited for.
  void charge_waits(engine::RouteState& route);
  void fill_views(PendingImpl& pending);

  std::shared_ptr<GroupImpl> group_;
  ExchangeConfig config_;
  ExchangePlan plan_;
  std::shared_ptr<const plan::OwnerMap> owners_;
  std::unique_ptr<engine::Engine> engine_;
  std::array<Slot, layout::ArenaLayout::kDeliveries> slots_;
  std::uint64_t num_dispatches_ = 0;
  std::vector<std::shared_ptr<PendingImpl>> outstanding_;
  std::vector<std::int64_t> charged_wait_ns_by_peer_;
  std::map<std::uint64_t, DeliveryOutputs> posted_;  // by route
};

}  // namespace ferry::detail
