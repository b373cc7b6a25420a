#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cpu/gate.hpp"
#include "cpu/thread_pool.hpp"
#include "engine/engine.hpp"
#include "engine/route_state.hpp"
#include "ferry/exchange.hpp"
#include "layout/arena_layout.hpp"
#include "plan/chunks.hpp"

namespace ferry::cpu {

using engine::CombineOperation;
using engine::DispatchOperation;
using engine::EngineConfig;
using engine::RouteArgs;
using engine::RouteState;
using engine::set_error;

// Low-latency operations of one kind, numbered from 1. Operation n uses buffer n modulo the number
// of buffers; a buffer is granted again when its operation and all earlier ones are finished here,
// in whatever order they were.
struct LowLatencySequence {
  std::uint64_t num_begun = 0;
  std::uint64_t num_consumed = 0;    // all operations up to this one are finished
  std::set<std::uint64_t> finished;  // later ones that are finished already

  [[nodiscard]] bool is_full() const noexcept {
    return num_begun - num_consumed >= layout::ArenaLayout::kLowLatencyBuffers;
  }

  // Returns the number to announce.
  std::uint64_t consume(std::uint64_t ordinal) {
    finished.insert(ordinal);
    while (finished.erase(num_consumed + 1) == 1) ++num_consumed;
    return num_consumed;
  }
};

// The CPU engine: every function runs in the calling thread (and the rank's pool).
class Engine final : public engine::Engine {
 public:
  Engine(boot::Store& store,
         memory::GroupSegments& segments,
         memory::Arena arena,
         const layout::ArenaLayout& layout,
         const EngineConfig& config);

  [[nodiscard]] std::shared_ptr<RouteState> begin_route(const RouteArgs& args) override;
  void finish_route(RouteState& route) override;
  void begin_dispatch(DispatchOperation& dispatch) override;
  void finish_dispatch(DispatchOperation& dispatch) override;
  void begin_combine(CombineOperation& combine) override;
  void finish_combine(CombineOperation& combine) override;
  [[nodiscard]] bool must_finish_oldest_dispatch() const noexcept override {
    return ll_dispatches_.is_full();
  }
  [[nodiscard]] bool must_finish_oldest_combine() const noexcept override {
    return ll_combines_.is_full();
  }
  void agree(layout::Operation operation,
             std::uint64_t digest,
             const std::optional<Error>& error) override;
  void check_alive() override { gate_.check_alive(); }
  void set_arrival_timeout(std::chrono::milliseconds timeout) noexcept override {
    gate_.set_arrival_timeout(timeout);
  }
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
  [[nodiscard]] std::vector<std::int64_t> wait_ns_by_peer() const override {
    return gate_.wait_ns_by_peer();
  }

 private:
  // The start of a part of a delivery slot in this rank's arena.
  [[nodiscard]] std::byte* delivery_part(int slot, std::int64_t part_offset) const noexcept {
    return arena_.base() + layout_.deliveries[slot] + part_offset;
  }
  [[nodiscard]] int rank() const noexcept { return gate_.rank(); }
  [[nodiscard]] int num_ranks() const noexcept { return gate_.num_ranks(); }

  // route.cc
  void plan_route(RouteState& route);
  void plan_rows(RouteState& route, const std::vector<plan::SourceCounts>& counts);
  void plan_pending_routes(std::uint64_t up_to);
  std::uint64_t publish(const layout::OperationShape& shape, const layout::OperationWords& words);

  // dispatch_send.cc
  void reserve_delivery(DispatchOperation& dispatch);
  void reserve_rows(const RouteState& route, std::int64_t offset, std::int64_t bytes_per_row);
  [[nodiscard]] layout::OperationWords words_of(const DispatchOperation& dispatch) const;
  void send_rows(DispatchOperation& dispatch, std::int64_t chunk);
  void prepare_row(const DispatchOperation& dispatch,
                   std::int64_t token,
                   std::byte* row_buffer,
                   std::byte* scale_buffer,
                   const std::byte*& row,
                   const std::byte*& scales) const;
  void count_dispatch(DispatchOperation& dispatch);

  // dispatch_recv.cc
  void receive_chunk(DispatchOperation& dispatch, std::int64_t chunk);
  void complete_delivery(DispatchOperation& dispatch);
  void fill_row_experts(const DispatchOperation& dispatch);
  void fill_unused_ids(const DispatchOperation& dispatch);
  void zero_gaps(const DispatchOperation& dispatch);
  void write_counts(const DispatchOperation& dispatch);
  void transpose_scales(const DispatchOperation& dispatch);
  void copy_to_caller(const DispatchOperation& dispatch);
  [[nodiscard]] std::byte* rows_of(const DispatchOperation& dispatch) const;

  // combine_send.cc
  void offer_row_weights(CombineOperation& combine);
  void begin_push(CombineOperation& combine);
  void push_chunk(CombineOperation& combine, std::int64_t chunk);
  void push_rows(const CombineOperation& combine,
                 std::int64_t first_token,
                 std::int64_t end_token,
                 const std::vector<std::byte*>& areas);
  [[nodiscard]] int row_weights_per_row(const RouteState& route) const noexcept;
  [[nodiscard]] std::int64_t push_pitch(const CombineOperation& combine) const noexcept;

  // combine_recv.cc
  void pull_tokens(CombineOperation& combine);
  void sum_staged_tokens(CombineOperation& combine,
                         std::int64_t first_token,
                         std::int64_t end_token,
                         const std::byte* area);
  template <typename RowOf, typename WeightOf>
  void sum_tokens(CombineOperation& combine,
                  std::int64_t first_token,
                  std::int64_t end_token,
                  const RowOf& row_of,
                  const WeightOf& weight_of);
  void count_combine(CombineOperation& combine);

  // low_latency.cc
  void begin_low_latency_dispatch(DispatchOperation& dispatch);
  void finish_low_latency_dispatch(DispatchOperation& dispatch);
  void send_parcels(DispatchOperation& dispatch);
  void expand_source(DispatchOperation& dispatch, int source);
  // Where the row of a record lies: behind it, or still in the caller's x.
  [[nodiscard]] const std::byte* row_of_record(const DispatchOperation& dispatch,
                                               int source,
                                               const std::byte* record) const;
  void place_row(const DispatchOperation& dispatch,
                 int source,
                 const std::byte* record,
                 std::int64_t row);
  void place_by_rank(const DispatchOperation& dispatch,
                     int source,
                     const std::byte* record,
                     std::int64_t row);
  void place_by_expert(const DispatchOperation& dispatch,
                       int source,
                       const std::byte* record,
                       std::int64_t row,
                       int k);
  void begin_low_latency_combine(CombineOperation& combine);
  void finish_low_latency_combine(CombineOperation& combine);

  layout::ArenaLayout layout_;
  EngineConfig config_;
  memory::Arena arena_;
  Gate gate_;
  ThreadPool pool_;
  std::vector<std::shared_ptr<RouteState>> pending_routes_;  // published, not yet planned
  bool is_staging_used_[layout::ArenaLayout::kStagingAreas] = {};
  std::uint64_t last_offer_ = 0;  // operation that last put row weights into the scratch
  LowLatencySequence ll_dispatches_;
  LowLatencySequence ll_combines_;
  Counters counters_;
};

}  // namespace ferry::cpu
