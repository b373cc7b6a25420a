#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cpu/gate.hpp"
#include "cpu/route_state.hpp"
#include "cpu/thread_pool.hpp"
#include "ferry/exchange.hpp"
#include "layout/arena_layout.hpp"
#include "plan/chunks.hpp"

namespace ferry::cpu {

// What the engine needs of an exchange's configuration, resolved.
struct EngineConfig {
  int num_experts = 0;
  int top_k = 0;
  std::int64_t max_tokens = 0;
  std::int64_t max_row_bytes = 0;
  std::int64_t max_scale_bytes = 0;
  std::int64_t memory_limit = 0;
  bool accepts_duplicates = false;
  bool is_low_latency = false;  // with fixed regions: LowLatencyForm::kExpand
  RowOrder row_order = RowOrder::kRankAscending;
  int num_threads = 1;
  Deadlines deadlines;
};

struct RouteArgs {
  plan::TopkView topk;
  plan::RouteShape shape;
  Sizing sizing = Sizing::kExact;
  bool is_overflow_error = true;
  std::int64_t worst_rows = 0;
  std::shared_ptr<const plan::OwnerMap> owners;
  std::optional<Error> error;  // an argument is unusable; every rank will throw this
};

// One dispatch from begin to finish. Pointers are the caller's; tensors are validated.
struct DispatchOperation {
  std::shared_ptr<RouteState> route;
  std::optional<Error> error;

  const std::byte* x = nullptr;
  std::int64_t x_pitch = 0;  // bytes between rows
  DType x_dtype = DType::kBf16;
  std::int64_t hidden = 0;
  DType row_dtype = DType::kBf16;  // as delivered
  std::int64_t row_bytes = 0;      // as delivered
  Quantize quantize = Quantize::kNone;
  bool is_scaled_by_weights = false;

  const std::byte* scales = nullptr;  // the caller's, or null
  DType scale_dtype = DType::kFp32;
  std::int64_t num_scales = 0;    // S, delivered
  std::int64_t scale_pitch = 0;   // bytes between rows of the caller's scales
  std::int64_t scale_stride = 0;  // bytes between a row's scales
  ScaleLayout scale_layout = ScaleLayout::kRowMajor;

  bool has_weights = false;            // weights travel; the pointer may be null where T is 0
  const std::byte* weights = nullptr;  // float32 [T, K]
  std::int64_t weights_pitch = 0;
  Gaps gaps = Gaps::kUndefined;

  bool is_split = false;  // the caller's tensors may change between begin and finish

  int slot = 0;                               // of the delivery ring
  std::optional<std::int64_t> direct_offset;  // the caller's rows, inside the arena
  std::byte* staged_out = nullptr;            // the caller's rows, outside it
  // The caller's other outputs, or null; copied to at the end.
  std::byte* scales_out = nullptr;
  std::byte* topk_out = nullptr;
  std::byte* weights_out = nullptr;

  // Filled by the engine.
  std::uint64_t sequence = 0;       // of the last chunk that began
  std::int64_t num_chunks = 1;      // over all ranks
  std::int64_t rows_per_chunk = 0;  // window of this rank's staging, in rows
  bool is_low_latency = false;
  std::uint64_t low_latency_ordinal = 0;
  std::int64_t num_wire_rows = 0;     // rows that this rank wrote into other ranks' memory
  std::int64_t num_written_rows = 0;  // rows that it wrote at all
  std::int64_t num_direct_rows = 0;   // rows that finish takes from the caller's x
  bool is_finished = false;

  [[nodiscard]] std::int64_t scale_bytes() const {
    return num_scales * static_cast<std::int64_t>(dtype_bytes(scale_dtype));
  }
  // Low latency: a rank's rows for itself need no copy in between.
  [[nodiscard]] bool takes_own_rows_from_x() const {
    return !is_split && quantize == Quantize::kNone;
  }
};

// One combine (or combine_weights) from begin to finish.
struct CombineOperation {
  std::shared_ptr<RouteState> route;
  std::optional<Error> error;

  layout::Operation kind = layout::Operation::kCombine;
  const std::byte* y = nullptr;
  std::int64_t y_pitch = 0;
  DType dtype = DType::kBf16;
  std::int64_t hidden = 0;
  std::int64_t row_bytes = 0;
  std::optional<std::int64_t> y_offset;  // in the arena
  std::byte* out = nullptr;
  std::int64_t out_pitch = 0;
  CombineForm form = CombineForm::kAuto;
  bool is_split = false;  // as above

  const std::byte* topk_weights = nullptr;  // float32 [T, K]: weighted
  std::int64_t topk_weights_pitch = 0;
  const std::byte* bias = nullptr;
  std::int64_t bias_pitch = 0;
  const std::byte* second_bias = nullptr;
  std::int64_t second_bias_pitch = 0;
  bool has_row_weights = false;  // weights travel back; pointers may be null where n or T is 0
  const float* row_weights = nullptr;  // dense [n, K] or [n]
  float* combined_weights = nullptr;   // dense [T, K]

  // Filled by the engine.
  std::uint64_t sequence = 0;
  bool is_pull = false;
  int staging_area = -1;
  std::int64_t num_chunks = 1;
  std::int64_t tokens_per_chunk = 0;
  bool is_low_latency = false;
  std::uint64_t low_latency_ordinal = 0;
  bool is_finished = false;

  // Low latency: a rank's rows for itself need no copy in between.
  [[nodiscard]] bool takes_own_rows_from_y() const { return is_low_latency && !is_split; }
};

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

// The CPU engine of one rank: what an exchange does once its arguments are valid. Every function
// runs in the calling thread (and the rank's pool) and is collective unless said otherwise.
class Engine {
 public:
  Engine(boot::Store& store,
         memory::GroupSegments& segments,
         memory::Arena arena,
         const layout::ArenaLayout& layout,
         const EngineConfig& config);

  // Publishes this rank's counts; does not wait for the peers'.
  [[nodiscard]] std::shared_ptr<RouteState> begin_route(const RouteArgs& args);
  // Waits for all counts and plans. Throws the route's error. Idempotent.
  void finish_route(RouteState& route);

  void begin_dispatch(DispatchOperation& dispatch);
  void finish_dispatch(DispatchOperation& dispatch);

  void begin_combine(CombineOperation& combine);
  void finish_combine(CombineOperation& combine);
  // Every buffer of low-latency dispatches (combines) is in use since the oldest outstanding one:
  // it must be finished before the next begins, or every rank would wait for its buffer for ever.
  [[nodiscard]] bool must_finish_oldest_dispatch() const noexcept {
    return ll_dispatches_.is_full();
  }
  [[nodiscard]] bool must_finish_oldest_combine() const noexcept { return ll_combines_.is_full(); }

  // Passes when every rank calls it with the same digest.
  void agree(layout::Operation operation, std::uint64_t digest, const std::optional<Error>& error);

  [[nodiscard]] memory::Arena& arena() noexcept { return arena_; }
  [[nodiscard]] Gate& gate() noexcept { return gate_; }
  [[nodiscard]] const layout::ArenaLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] Counters counters() const;

  // The start of a part of a delivery slot in this rank's arena.
  [[nodiscard]] std::byte* delivery_part(int slot, std::int64_t part_offset) const noexcept {
    return arena_.base() + layout_.deliveries[slot] + part_offset;
  }
  // Overwrites a slot's reserved rows with a recognisable pattern (debug builds).
  void poison_delivery(int slot);

 private:
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
  [[nodiscard]] layout::OperationShape shape_of(const DispatchOperation& dispatch) const;
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
  [[nodiscard]] layout::OperationShape shape_of(const CombineOperation& combine) const;
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

// Runs `check`, and gives back the Error it threw, if it threw one.
template <typename Check>
[[nodiscard]] std::optional<Error> capture_error(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Puts an error found on this rank into its header.
void set_error(layout::OperationWords& words, const std::optional<Error>& error);

}  // namespace ferry::cpu
