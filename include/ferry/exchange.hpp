#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ferry/api.hpp"
#include "ferry/error.hpp"
#include "ferry/group.hpp"
#include "ferry/tensor.hpp"

// Letters in shapes: T tokens on this rank, H hidden, K top_k, E experts, R ranks, E_l local
// experts, n rows that this rank receives, S scales per row.

namespace ferry {

namespace detail {
class ExchangeImpl;
class RouteImpl;
class DeliveryImpl;
class PendingImpl;
}  // namespace detail

// The form of delivered rows.
enum class Layout : int {
  // One row per (token, destination rank), sorted by (source rank, source token).
  kByRank = 0,
  // One row per (token, local expert): each expert's rows contiguous, starts aligned to
  // expert_alignment, sorted by (source rank, source token) inside an expert.
  kByExpert = 1,
  // [E_l, R*max_tokens, H]: expert e's valid rows are its first counts[e], sorted likewise.
  kPadded = 2,
};

enum class Mode : int {
  kHighThroughput = 0,  // thousands of tokens: every row is written once, at its final place
  kLowLatency = 1,      // at most a few hundred: rows leave before the counts are known
};

enum class Sizing : int {
  kExact = 0,      // route() waits for the counts; outputs have exactly that many rows
  kWorstCase = 1,  // no host wait; outputs have the configured worst case, unused ids are -1
};

enum class Duplicates : int {
  kRefuse = 0,  // an expert named twice by one token is an error on all ranks
  // Each occurrence contributes: one row per rank, one per (token, expert, k). kPadded holds
  // R*max_tokens rows per expert; a batch with more for one is refused on all ranks.
  kAccept = 1,
};

// What happens to rows beyond max_recv_rows.
enum class Overflow : int {
  kError = 0,  // the operation is refused on all ranks; nothing moves
  kDrop = 1,   // they are not delivered and contribute nothing; Counters::dropped_rows counts them
};

// Conversion of bf16 rows on the way; one scale per 128 channels (the last group may be short).
// value = fp8 * scale. amax: the largest finite magnitude of the group, at least 1e-4. A NaN stays
// in its own element (0x7F), an infinity becomes +-448.
enum class Quantize : int {
  kNone = 0,
  kFp8 = 1,  // fp8 e4m3 of x * (448 / amax); scales float32 [n, ceil(H/128)], amax * (1 / 448)
  // fp8 e4m3 of x * 2^-e, e = ceil(log2(amax / 448)); scales int32 [n, ceil(H/512)], group 4p+i in
  // byte i of word p (least significant first), each byte the fp32 exponent of 2^e.
  kFp8Ue8m0 = 2,
};

enum class ScaleLayout : int {
  kRowMajor = 0,
  // Transposed storage for TMA: element (row, s) at s * align(rows, 4) + row (per expert in
  // kPadded); the view keeps the logical shape and carries these strides.
  kColumnMajor = 1,
};

enum class Gaps : int {
  kUndefined = 0,
  kZeroed = 1,  // rows between experts (and unused worst-case rows) are zero-filled
};

// The order in which combine adds a token's rows; weighted sums always go by ascending k.
enum class RowOrder : int {
  kRankAscending = 0,      // by destination rank, then k (DeepEP V1)
  kHighestKAscending = 1,  // by the highest k that the row serves (DeepEP V2)
};

// Where partial sums are rounded when a group spans nodes; on one node all give the same bits.
enum class Reduction : int { kPerNode = 0, kPerRank = 1, kWide = 2, kExact = 3 };

enum class CombineForm : int {
  kAuto = 0,  // pull where y lies in the arena and the operation is not split, else push
  kPull = 1,  // token owners read the peers' y; refused if y is outside the arena on any rank
  kPush = 2,  // rows go to slots at the token's owner, which sums locally
};

// How Mode::kLowLatency moves rows.
enum class LowLatencyForm : int {
  kAuto = 0,    // the plan chooses from sizes in the configuration
  kPacked = 1,  // counts first, then rows straight into their places
  kExpand =
      2,  // one copy per rank into fixed regions, placed by the receiver once counts are known
};

// The same on every rank, except num_threads, num_sms and device.index; a difference is refused at creation
// naming the field, the ranks and the values.
struct ExchangeConfig {
  int num_experts = 0;      // E, 1..4096; physical slots
  int top_k = 0;            // K, 1..32, at most E
  std::int64_t hidden = 0;  // widest row, in elements of `dtype`; rows are multiples of 16 bytes
  std::int64_t max_tokens = 0;  // largest T of any rank in any call
  DType dtype = DType::kBf16;   // widest element that is moved
  Device device = Device::cpu();
  Mode mode = Mode::kHighThroughput;
  Layout layout = Layout::kByRank;    // of routes that do not say otherwise; sizes the arena
  std::int64_t expert_alignment = 1;  // rows; kByExpert starts and the aligned counts
  Duplicates duplicates = Duplicates::kRefuse;
  // expert_owner[e] is the rank of expert e; empty: contiguous blocks, E must then be divisible by
  // R.
  std::vector<int> expert_owner{};
  std::int64_t scale_bytes_per_row =
      0;                           // widest row of caller-given scales; 0: none but quantize's
  std::int64_t max_recv_rows = 0;  // cap of delivered rows; 0: the worst case
  Overflow overflow = Overflow::kError;
  std::int64_t memory_limit = 0;  // bytes of staging per rank; larger batches go in chunks. 0: none
  std::int64_t arena_bytes = 0;   // room for allocate(); 0: two worst-case outputs
  LowLatencyForm low_latency_form = LowLatencyForm::kAuto;
  RowOrder row_order = RowOrder::kRankAscending;
  Reduction reduction = Reduction::kPerNode;
  int num_threads = 0;                            // CPU engine, per rank; 0: usable cores / ranks
  int num_sms = 0;                                // CUDA engine, per rank; 0: the plan's choice
  std::chrono::milliseconds arrival_timeout{0};   // 0: the group's
  std::chrono::milliseconds progress_timeout{0};  // 0: the group's
};

// What an exchange needs per rank; computed without allocating.
struct MemoryNeed {
  std::int64_t arena_virtual_bytes = 0;  // address space of one arena; pages follow use on the CPU
  std::int64_t delivery_bytes = 0;       // one worst-case delivery
  std::int64_t staging_bytes = 0;        // staging regions at their limit
  std::int64_t control_bytes = 0;        // counts, headers, flags
};

// Totals since creation, or of one route. Logical bytes are DeepEP's count: every received row
// (dispatch) or contributed row (combine), own ones included. Wire bytes left this rank for
// another.
struct Counters {
  std::int64_t dispatches = 0;
  std::int64_t combines = 0;
  std::int64_t dispatch_logical_bytes = 0;
  std::int64_t dispatch_wire_bytes = 0;
  std::int64_t combine_logical_bytes = 0;
  std::int64_t combine_wire_bytes = 0;
  std::int64_t memory_bytes_read = 0;     // row bytes that this rank's threads read
  std::int64_t memory_bytes_written = 0;  // row bytes that they wrote
  std::int64_t staged_bytes = 0;  // copies beyond write-once: outputs or y outside the arena, LL
  std::int64_t dropped_rows = 0;
  std::int64_t arena_bytes = 0;                 // pages reserved now
  std::int64_t arena_peak_bytes = 0;            // the most so far
  std::int64_t wait_ns = 0;                     // time blocked on peers
  std::vector<std::int64_t> wait_ns_by_peer{};  // [R]; a wait is charged to the peer that ended it
};

struct RouteOptions {
  std::optional<Layout> layout{};  // default: the exchange's
  Sizing sizing = Sizing::kExact;
  std::chrono::milliseconds timeout{0};  // arrival deadline of this call; 0: the exchange's
};

// The plan of one batch, made from topk_idx; serves any number of dispatches and combines, also
// after later routes. A handle; keeps its plan alive. Use after its exchange is destroyed throws.
class FERRY_API Route {
 public:
  Route() = default;
  [[nodiscard]] bool is_valid() const noexcept { return impl_ != nullptr; }
  [[nodiscard]] std::int64_t num_tokens() const;  // T of this rank
  [[nodiscard]] Layout layout() const;
  [[nodiscard]] Sizing sizing() const;
  // Rows that this rank receives, gaps of kByExpert included; exact sizing, else throws.
  [[nodiscard]] std::int64_t num_recv_rows() const;
  // Real and aligned counts per local expert, [E_l]; exact sizing, else throws.
  [[nodiscard]] const std::vector<std::int64_t>& expert_counts() const;
  [[nodiscard]] const std::vector<std::int64_t>& aligned_expert_counts() const;
  // Tokens that each source rank sends here, each once, [R]; exact sizing, else throws.
  [[nodiscard]] const std::vector<std::int64_t>& tokens_from_rank() const;
  [[nodiscard]] Counters counters() const;

  explicit Route(std::shared_ptr<detail::RouteImpl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const std::shared_ptr<detail::RouteImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<detail::RouteImpl> impl_;
};

// Caller memory for a delivery; what is not given is owned by the exchange. Tensors inside the
// arena are written directly by the peers, others are staged (counted in staged_bytes).
struct DeliveryOutputs {
  TensorView tokens{};        // [>= n, H] (kPadded: [E_l, R*max_tokens, H]), dense
  TensorView scales{};        // [>= n, S], dense, row-major
  TensorView topk_idx{};      // kByRank: [>= n, K], dtype of the route's topk_idx
  TensorView topk_weights{};  // kByRank: [>= n, K] float32; else [>= n] float32
};

struct DispatchOptions {
  TensorView topk_weights{};  // [T, K] float32; delivered beside the rows
  TensorView scales{};        // [T, S] of any 1, 2 or 4-byte dtype and any strides; moved opaque
  Quantize quantize = Quantize::kNone;
  ScaleLayout scale_layout = ScaleLayout::kRowMajor;
  Gaps gaps = Gaps::kUndefined;
  // Delivers round(weight * x) for the row's own weight (backward of a weighted combine); needs
  // topk_weights, 16 or 32-bit float rows and one row per expert.
  bool scale_by_weights = false;
  DeliveryOutputs outputs{};
  std::chrono::milliseconds timeout{0};
};

// What a dispatch delivered. A handle on memory of the exchange's ring of three (or the caller's
// outputs): the fourth dispatch after reuses the memory of the oldest unless a released handle made
// room, and every accessor then throws. Views are valid as long as the handle and its memory are.
class FERRY_API Delivery {
 public:
  Delivery() = default;
  [[nodiscard]] bool is_valid() const noexcept { return impl_ != nullptr; }

  [[nodiscard]] TensorView tokens() const;  // [n, H]; kPadded: [E_l, R*max_tokens, H]
  [[nodiscard]] TensorView scales() const;  // [n, S]; kPadded: [E_l, R*max_tokens, S]; or not given
  // kByRank: [n, K] local expert ids, -1 where column k's expert lives elsewhere and in unused
  // rows.
  [[nodiscard]] TensorView topk_idx() const;
  // kByRank: [n, K], 0 where topk_idx is -1. kByExpert: [n]. kPadded: [E_l, R*max_tokens].
  [[nodiscard]] TensorView topk_weights() const;
  // int32 [n, 2]: source token and slot (the k of the row; kByRank: the position of this rank among
  // the token's destinations); undefined in gaps. kPadded: [E_l, R*max_tokens, 2].
  [[nodiscard]] TensorView row_source() const;
  [[nodiscard]] TensorView row_expert() const;  // int32 [n], local expert, -1 in gaps; not kByRank
  [[nodiscard]] TensorView num_rows() const;    // int64 [1], gaps included
  [[nodiscard]] TensorView expert_counts() const;          // int64 [E_l], real
  [[nodiscard]] TensorView aligned_expert_counts() const;  // int64 [E_l]
  [[nodiscard]] TensorView expert_offsets() const;  // int64 [E_l + 1]: first row of each expert
  [[nodiscard]] TensorView source_offsets() const;  // int64 [R + 1], kByRank: first row per source

  explicit Delivery(std::shared_ptr<detail::DeliveryImpl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const std::shared_ptr<detail::DeliveryImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<detail::DeliveryImpl> impl_;
};

struct CombineOptions {
  // [T, K] float32 of this rank's own tokens: out[t] = sum over k of weight * row. Needs one row
  // per expert; refused on kByRank.
  TensorView topk_weights{};
  // Added first, at most two tensors [T, H] of y's dtype.
  TensorView bias{};
  TensorView second_bias{};
  // Weights that travel back: row_weights (kByRank [n, K], else [n] or [E_l, R*max_tokens],
  // float32) are gathered into combined_weights [T, K], 0 where topk_idx is -1. Given together.
  TensorView row_weights{};
  TensorView combined_weights{};
  CombineForm form = CombineForm::kAuto;
  std::chrono::milliseconds timeout{0};
};

// An operation between begin and finish. Its inputs must not change and its outputs must not be
// read until finish() has returned. At most three are outstanding on one exchange; finish in any
// order. Dropping an unfinished one poisons nothing: the next operation finishes it first.
template <typename Result>
class FERRY_API Pending {
 public:
  Pending() = default;
  // Blocks until the operation is complete on this rank; throws what the operation throws.
  Result finish();

  explicit Pending(std::shared_ptr<detail::PendingImpl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<detail::PendingImpl> impl_;
};

// Chooses one replica per selection, the same on every run: replicas_of[logical] lists the physical
// slots of a logical expert; token t, column k takes entry (t * 31 + k) % count, so that equal
// tokens spread. logical_topk and physical_topk: [T, K], int32 or int64 alike, dense; -1 stays -1.
// Local.
FERRY_API void map_replicas(const TensorView& logical_topk,
                            std::span<const std::vector<int>> replicas_of,
                            const TensorView& physical_topk);

// Dispatch and combine over one group with one configuration.
//
// All operations form one sequence: every rank issues the same operations in the same order, from
// one thread. An operation that differs is refused on every rank, both operations named. Invalid
// input (an id out of range, T above max_tokens) is refused on every rank with the same error
// before anything moves, and the group lives. A fault (kPeerLost, kTimeout) is sticky: every later
// call fails at once with the same cause.
//
// CPU engine: every call runs in the calling thread and blocks until its outputs are complete;
// between begin and finish nothing runs.
//
// CUDA engine: every call enqueues on `stream` and returns; only route() in exact sizing and
// set_owner_map() wait for the device. Tensors are device memory, rows start at multiples of 16
// bytes. Operations on different streams are chained. A delivery's memory is granted again by the
// dispatch that reuses it, in the order of that dispatch's stream. Invalid input that a device or
// another rank found is thrown by check(), behind a synchronised stream, and by the next route() in
// exact sizing. Worst-case routes, and operations along any route, can be captured into graphs.
class FERRY_API Exchange {
 public:
  // Collective. Throws kInvalidArgument naming the field for a configuration that is illegal or
  // differs between ranks, kNoResource with need, available and limit where memory is short.
  Exchange(const Group& group, const ExchangeConfig& config);
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;
  ~Exchange();  // destroy()

  // Needs per rank for a group of `num_ranks` on one node. Throws kInvalidArgument like the
  // constructor.
  [[nodiscard]] static MemoryNeed bytes_needed(const ExchangeConfig& config, int num_ranks);

  // Collective. topk_idx: [T, K] int32 or int64, rows may be strided, -1 is "none". The tensor is
  // copied; it may change afterwards. Blocks for the counts in exact sizing.
  [[nodiscard]] Route route(const TensorView& topk_idx,
                            const RouteOptions& options = {},
                            StreamRef stream = {});
  [[nodiscard]] Pending<Route> begin_route(const TensorView& topk_idx,
                                           const RouteOptions& options = {},
                                           StreamRef stream = {});

  // Collective. x: [T, H], rows dense and a multiple of 16 bytes, at most the configured width.
  [[nodiscard]] Delivery dispatch(const Route& route,
                                  const TensorView& x,
                                  const DispatchOptions& options = {},
                                  StreamRef stream = {});
  [[nodiscard]] Pending<Delivery> begin_dispatch(const Route& route,
                                                 const TensorView& x,
                                                 const DispatchOptions& options = {},
                                                 StreamRef stream = {});

  // Collective. y: the delivery's shape without its gaps' meaning, bf16, fp16 or fp32, dense rows;
  // out: [T, H] of y's dtype, dense rows. Requires a dispatch on this route before.
  void combine(const Route& route,
               const TensorView& y,
               const TensorView& out,
               const CombineOptions& options = {},
               StreamRef stream = {});
  [[nodiscard]] Pending<void> begin_combine(const Route& route,
                                            const TensorView& y,
                                            const TensorView& out,
                                            const CombineOptions& options = {},
                                            StreamRef stream = {});

  // Collective; moves scalars only: the weights part of combine.
  void combine_weights(const Route& route,
                       const TensorView& row_weights,
                       const TensorView& combined_weights,
                       StreamRef stream = {});

  // Names the outputs of the next dispatch on `route` early, so that peers are granted sooner.
  // Local.
  void post(const Route& route, const DeliveryOutputs& outputs, StreamRef stream = {});

  // Collective: new owners of the experts for later routes; older routes keep their map.
  void set_owner_map(std::span<const int> expert_owner, StreamRef stream = {});

  // Memory that peers can read and write directly. Local arithmetic plus page reservation (CPU).
  // 256-byte aligned. Throws kNoResource with need, available and limit.
  [[nodiscard]] void* allocate(std::int64_t bytes, StreamRef stream = {});
  [[nodiscard]] TensorView allocate(DType dtype,
                                    std::initializer_list<std::int64_t> shape,
                                    StreamRef stream = {});
  void deallocate(void* pointer, StreamRef stream = {});

  // Throws the sticky fault, if there is one. Does not block.
  void check() const;
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] const ExchangeConfig& config() const;
  [[nodiscard]] int num_local_experts() const;

  // Local, idempotent, never waits for a peer. Routes and deliveries of this exchange throw when
  // used afterwards; memory from allocate() is gone.
  void destroy() noexcept;

 private:
  std::shared_ptr<detail::ExchangeImpl> impl_;
};

}  // namespace ferry
