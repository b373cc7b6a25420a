#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine.hpp"
#include "ferry/exchange.hpp"
#include "support/host_tensor.hpp"
#include "support/routing.hpp"
#include "support/spawn.hpp"

namespace ferry::contract {

using support::HostTensor;
using support::Routing;

// One exchange and what moves through it. Inputs are functions of this description, so that any
// rank, and the reference, can compute those of any other.
struct Scenario {
  Routing routing;
  Layout layout = Layout::kByRank;
  std::int64_t hidden = 64;
  DType dtype = DType::kBf16;
  DType topk_dtype = DType::kInt64;
  bool has_weights = true;
  DType scale_dtype = DType::kFp32;
  std::int64_t num_scales = 0;  // scales given by the caller, per row
  Quantize quantize = Quantize::kNone;
  ScaleLayout scale_layout = ScaleLayout::kRowMajor;
  Gaps gaps = Gaps::kUndefined;
  bool scale_by_weights = false;

  DType sum_dtype = DType::kBf16;  // of y and out
  bool is_weighted = false;
  int num_biases = 0;
  bool returns_weights = false;
  CombineForm form = CombineForm::kAuto;
  bool y_in_arena = false;

  Duplicates duplicates = Duplicates::kRefuse;
  std::int64_t alignment = 1;
  std::int64_t max_tokens = 0;  // 0: the routing's largest T, at least 1
  RowOrder row_order = RowOrder::kRankAscending;
  std::int64_t memory_limit = 0;
  std::int64_t max_recv_rows = 0;
  Overflow overflow = Overflow::kError;
  std::int64_t arena_bytes = 0;
  std::uint64_t seed = 1;
  bool has_rough_values = false;  // y: any magnitude, every mantissa; else exact small integers
  // Changes to x and y of a rank, after the pattern.
  std::function<void(HostTensor& tokens, int rank)> edit_tokens;
  std::function<void(HostTensor& rows, int rank)> edit_rows;

  [[nodiscard]] std::int64_t token_limit() const;
};
[[nodiscard]] std::string describe(const Scenario& scenario);

[[nodiscard]] ExchangeConfig config_of(const Scenario& scenario,
                                       const EngineUnderTest& engine,
                                       int rank);

// Inputs of one rank.
[[nodiscard]] HostTensor topk_of(const Scenario& scenario, int rank);             // [T, K]
[[nodiscard]] HostTensor weights_of(const Scenario& scenario, int rank);          // [T, K] float32
[[nodiscard]] HostTensor tokens_of(const Scenario& scenario, int rank);           // [T, H]
[[nodiscard]] HostTensor scales_of(const Scenario& scenario, int rank);           // [T, S]
[[nodiscard]] HostTensor bias_of(const Scenario& scenario, int rank, int which);  // [T, H]
// [rows, H] for combine. Rows that carry nothing (gaps, unused) are NaN: a sum that touches one
// shows it.
[[nodiscard]] HostTensor rows_of(const Scenario& scenario,
                                 int rank,
                                 const std::vector<std::int64_t>& shape);
// Weights to send back: float32, [rows] or, in kByRank, [rows, K].
[[nodiscard]] HostTensor row_weights_of(const Scenario& scenario,
                                        int rank,
                                        const std::vector<std::int64_t>& shape);

// One delivery, copied to host memory.
struct Received {
  HostTensor tokens, scales, topk_idx, topk_weights, row_source, row_expert, num_rows;
  HostTensor expert_counts, aligned_expert_counts, expert_offsets, source_offsets;
};
[[nodiscard]] Received fetch(const EngineMemory& memory, const Delivery& delivery);

// One rank of a scenario inside its thread.
class RankUnderTest {
 public:
  RankUnderTest(const Group& group, const EngineUnderTest& engine, const Scenario& scenario);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] Exchange& exchange() { return exchange_; }
  [[nodiscard]] EngineMemory& memory() { return *memory_; }

  // The whole of each operation on inputs of `scenario` (this one's unless given).
  [[nodiscard]] Route route(const Scenario* scenario = nullptr);
  [[nodiscard]] DispatchOptions dispatch_options(const Scenario* scenario = nullptr);
  [[nodiscard]] Delivery dispatch(const Route& route, const Scenario* scenario = nullptr);

  // y, out and what else a combine of the scenario needs; valid while this object lives.
  struct CombineCall {
    TensorView y;
    TensorView out;
    CombineOptions options;
  };
  [[nodiscard]] CombineCall combine_call(const Delivery& delivery,
                                         const Scenario* scenario = nullptr);

  // out, and the combined weights where the scenario returns them.
  struct Combined {
    HostTensor out, weights;
  };
  [[nodiscard]] Combined combine(const Route& route,
                                 const Delivery& delivery,
                                 const Scenario* scenario = nullptr);
  [[nodiscard]] Combined fetch_combined(const CombineCall& call) const;

  // What a call throws, now or once the device has got to it.
  [[nodiscard]] support::Outcome attempt(const std::function<void()>& call);

 private:
  const EngineUnderTest& engine_;
  const Scenario& scenario_;
  int rank_;
  std::unique_ptr<EngineMemory> memory_;  // outlives the exchange's last use of it
  Exchange exchange_;
};

// What every rank of a scenario got: route, dispatch, combine, once each.
struct RankResult {
  Received received;
  RankUnderTest::Combined combined;
  Counters counters;
  std::vector<std::int64_t> route_expert_counts, route_aligned_counts, route_tokens_from_rank;
  std::int64_t route_num_recv_rows = -1;
};
struct RunOptions {
  bool combines = true;
};
[[nodiscard]] std::vector<RankResult> run(const EngineUnderTest& engine,
                                          const Scenario& scenario,
                                          const RunOptions& options = {});

}  // namespace ferry::contract
