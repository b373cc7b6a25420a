#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/route_state.hpp"
#include "ferry/exchange.hpp"
#include "layout/control_block.hpp"
#include "plan/topk.hpp"

// What an exchange asks of an engine: arguments that are checked, as plain pointers.
namespace ferry::engine {

struct Deadlines {
  std::chrono::milliseconds arrival{300000};  // a peer that has not reached the operation
  std::chrono::milliseconds progress{10000};  // one that has, and moves nothing any more
  std::chrono::milliseconds late_warning{10000};
};

// What the engine needs of an exchange's configuration, resolved.
struct EngineConfig {
  int num_experts = 0;
  int top_k = 0;
  std::int64_t max_tokens = 0;
  std::int64_t max_row_bytes = 0;
  std::int64_t max_scale_bytes = 0;
  std::int64_t memory_limit = 0;
  bool accepts_duplicates = false;
  Mode mode = Mode::kHighThroughput;
  bool is_low_latency = false;  // with fixed regions: LowLatencyForm::kExpand
  RowOrder row_order = RowOrder::kRankAscending;
  // CUDA: a row for several local experts crosses once and is copied by its receiver, or each copy is
  // written directly. Nothing: as the links are.
  std::optional<bool> expands;
  int num_threads = 1;  // CPU
  int num_sms = 0;      // CUDA; 0: the plan's choice
  Device device;
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
  StreamRef stream;
};

// One dispatch from begin to finish. Pointers are the caller's; tensors are validated.
struct DispatchOperation {
  std::shared_ptr<RouteState> route;
  std::optional<Error> error;
  StreamRef stream;

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
  StreamRef stream;

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

// Channels that share one scale of a quantised row.
inline constexpr std::int64_t kQuantizeGroup = 128;

// Scales per row in elements of the scale dtype: ceil(H/128) float32 (kFp8) or ceil(H/512) int32
// words (kFp8Ue8m0); 0 for kNone.
[[nodiscard]] std::int64_t num_scales(Quantize quantize, std::int64_t hidden) noexcept;

// What all ranks must agree on for one operation.
[[nodiscard]] layout::OperationShape shape_of(const DispatchOperation& dispatch);
[[nodiscard]] layout::OperationShape shape_of(const CombineOperation& combine);

// Rows that each destination receives, [R]. The same on every rank, and so is what it throws:
// kNoResource where a destination exceeds max_recv_rows and that is an error.
[[nodiscard]] std::vector<std::int64_t> cap_num_rows(std::span<const plan::SourceCounts> counts,
                                                     const RouteState& route);

// "dtype bf16 against fp16": the first field in which two ranks' shapes differ, or nothing.
[[nodiscard]] std::string first_difference(const layout::OperationShape& a,
                                           const layout::OperationShape& b);

// Puts an error found on this rank into its header.
void set_error(layout::OperationWords& words, const std::optional<Error>& error);

}  // namespace ferry::engine
