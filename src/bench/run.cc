#include "bench/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/env.hpp"
#include "bench/host_buffer.hpp"
#include "bench/progress.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Deliveries come from a ring of three: so many iterations before the checked one leave poison.
constexpr int kPoisonedIterations = 3;
constexpr int kPoison = 0xA5;

template <typename Call>
std::int64_t time_ns(Call&& call) {
  const Clock::time_point start = Clock::now();
  call();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

std::int64_t tensor_bytes(const TensorView& view) {
  return view.num_elements() * static_cast<std::int64_t>(dtype_bytes(view.dtype));
}

// What a delivery holds row by row.
std::vector<TensorView> row_tensors(const DeliverySnapshot& seen) {
  return {seen.tokens,       seen.scales,     seen.topk_idx,
          seen.topk_weights, seen.row_source, seen.row_expert};
}

void fill(const TensorView& view, std::int64_t first_byte, std::int64_t num_bytes) {
  if (num_bytes > 0)
    std::memset(static_cast<std::byte*>(view.data) + first_byte, kPoison,
                static_cast<std::size_t>(num_bytes));
}

// Overwrites a delivery, so that nothing of it can pass for what a later one delivers. In kPadded
// only the rows that hold tokens: the others' pages are better left untouched.
void poison(Layout layout, const DeliverySnapshot& seen) {
  const std::int64_t num_experts = seen.expert_counts.num_elements();
  for (const TensorView& view : row_tensors(seen)) {
    if (!view.is_given()) continue;
    if (layout != Layout::kPadded) {
      fill(view, 0, tensor_bytes(view));
      continue;
    }
    const std::int64_t expert_bytes = num_experts > 0 ? tensor_bytes(view) / num_experts : 0;
    const std::int64_t rows_of_expert = seen.tokens.shape[1];
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      const std::int64_t count = static_cast<const std::int64_t*>(seen.expert_counts.data)[expert];
      fill(view, expert * expert_bytes, count * (expert_bytes / rows_of_expert));
    }
  }
}

// One rank's inputs, in this process's own memory.
class Inputs {
 public:
  Inputs(const Batch& batch, int rank)
      : num_tokens_(batch.routing.num_tokens(rank)),
        top_k_(batch.routing.top_k),
        hidden_(batch.hidden),
        x_(num_tokens_ * hidden_ * 2),
        out_(num_tokens_ * hidden_ * 2),
        ids_(num_tokens_ * top_k_ * 8),
        weights_(num_tokens_ * top_k_ * 4) {
    const std::vector<int>& topk = batch.routing.topk[static_cast<std::size_t>(rank)];
    std::ranges::copy(topk, ids_.as<std::int64_t>(num_tokens_ * top_k_).begin());
    const auto weights = weights_.as<float>(num_tokens_ * top_k_);
    const auto x = x_.as<std::uint16_t>(num_tokens_ * hidden_);
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      const auto hidden = static_cast<std::size_t>(hidden_);
      fill_row(batch, rank, token, x.subspan(static_cast<std::size_t>(token) * hidden, hidden));
      for (int k = 0; k < top_k_; ++k)
        weights[static_cast<std::size_t>(token * top_k_ + k)] = weight_at(batch, rank, token, k);
    }
  }

  [[nodiscard]] TensorView x() const {
    return TensorView::dense(x_.base(), DType::kBf16, {num_tokens_, hidden_});
  }
  [[nodiscard]] TensorView out() const {
    return TensorView::dense(out_.base(), DType::kBf16, {num_tokens_, hidden_});
  }
  [[nodiscard]] TensorView topk_idx() const {
    return TensorView::dense(ids_.base(), DType::kInt64, {num_tokens_, top_k_});
  }
  [[nodiscard]] TensorView topk_weights() const {
    return TensorView::dense(weights_.base(), DType::kFp32, {num_tokens_, top_k_});
  }
  void poison_out() const { fill(out(), 0, tensor_bytes(out())); }

 private:
  std::int64_t num_tokens_;
  std::int64_t top_k_;
  std::int64_t hidden_;
  HostBuffer x_;
  HostBuffer out_;
  HostBuffer ids_;
  HostBuffer weights_;
};

// What one call added to the counters.
void record_bytes(OpRecord& op, const Counters& before, const Counters& after) {
  op.logical_bytes = after.dispatch_logical_bytes - before.dispatch_logical_bytes +
                     after.combine_logical_bytes - before.combine_logical_bytes;
  op.wire_bytes = after.dispatch_wire_bytes - before.dispatch_wire_bytes +
                  after.combine_wire_bytes - before.combine_wire_bytes;
  op.read_bytes = after.memory_bytes_read - before.memory_bytes_read;
  op.written_bytes = after.memory_bytes_written - before.memory_bytes_written;
  op.staged_bytes = after.staged_bytes - before.staged_bytes;
}

class RankBench {
 public:
  RankBench(const BenchOptions& options, const Batch& batch, const Group& group, bool has_progress)
      : options_(options),
        batch_(batch),
        group_(group),
        exchange_(group, make_config(options, batch)),
        inputs_(batch, group.rank()),
        progress_(has_progress, options.warmup + options.iters + 2) {}

  RankRun run() {
    RankRun result;
    progress_.advance("ceiling");
    if (group_.rank() == 0 && options_.has_ceiling)
      result.ceiling = measure_ceiling({.row_bytes = 2 * batch_.hidden});
    const int total = options_.warmup + options_.iters;
    for (int i = 0; i < total; ++i) {
      progress_.advance(i < options_.warmup ? "warm-up" : "measuring");
      iterate(i >= options_.warmup, total - 1 - i);
    }
    progress_.advance("finishing");
    if (options_.mode == Mode::kLowLatency) {
      measure_round_trips();
      result.ping_pong =
          measure_ping_pong(group_, record_.dispatch.logical_bytes, record_.combine.logical_bytes,
                            std::max(options_.iters, 100));
    }
    finish_record();
    result.record = std::move(record_);
    return result;
  }

 private:
  [[nodiscard]] RouteOptions route_options() const {
    RouteOptions route;
    route.sizing = options_.sizing;
    return route;
  }

  [[nodiscard]] DispatchOptions dispatch_options() const {
    DispatchOptions dispatch;
    dispatch.topk_weights = inputs_.topk_weights();
    dispatch.quantize = batch_.quantize;
    return dispatch;
  }

  [[nodiscard]] CombineOptions combine_options() const {
    CombineOptions combine;
    combine.form = options_.combine;
    if (batch_.is_weighted) combine.topk_weights = inputs_.topk_weights();
    return combine;
  }

  // y of combine: the delivered rows themselves, or for fp8 rows bf16 memory of the arena, made for
  // the first delivery; later ones have the same shape, since the routing is the same.
  const TensorView& y_for(const Delivery& delivery) {
    const TensorView tokens = delivery.tokens();
    if (batch_.quantize == Quantize::kNone) return y_ = tokens;
    if (y_.is_given()) return y_;
    y_ =
        tokens.num_dims == 2
            ? exchange_.allocate(DType::kBf16, {tokens.shape[0], tokens.shape[1]})
            : exchange_.allocate(DType::kBf16, {tokens.shape[0], tokens.shape[1], tokens.shape[2]});
    own_y_bytes_ = tensor_bytes(y_);
    return y_;
  }

  void iterate(bool is_timed, int remaining) {
    const bool is_checked = options_.is_checked && remaining == 0;
    const Counters before = exchange_.counters();
    Route route;
    group_.barrier();
    const std::int64_t route_ns =
        time_ns([&] { route = exchange_.route(inputs_.topk_idx(), route_options()); });
    const Counters routed = exchange_.counters();

    Delivery delivery;
    group_.barrier();
    const std::int64_t dispatch_ns =
        time_ns([&] { delivery = exchange_.dispatch(route, inputs_.x(), dispatch_options()); });
    const Counters dispatched = exchange_.counters();

    const DeliverySnapshot seen = snapshot(delivery, batch_.layout);
    const TensorView y = y_for(delivery);
    if (is_checked) {
      checks_.push_back(check_delivery(batch_, group_.rank(), seen));
      apply_experts(batch_, group_.rank(), seen, y);
    }

    const Counters prepared = exchange_.counters();
    group_.barrier();
    const std::int64_t combine_ns =
        time_ns([&] { exchange_.combine(route, y, inputs_.out(), combine_options()); });
    const Counters combined = exchange_.counters();

    if (is_checked) checks_.push_back(check_combined(batch_, group_.rank(), inputs_.out()));
    if (options_.is_checked && remaining > 0 && remaining <= kPoisonedIterations) {
      poison(batch_.layout, seen);
      inputs_.poison_out();
    }
    if (!is_timed) return;
    record_.route.ns.push_back(route_ns);
    record_.dispatch.ns.push_back(dispatch_ns);
    record_.combine.ns.push_back(combine_ns);
    record_bytes(record_.route, before, routed);
    record_bytes(record_.dispatch, routed, dispatched);
    record_bytes(record_.combine, prepared, combined);
    delivery_bytes_ = 0;
    for (const TensorView& view : row_tensors(seen)) delivery_bytes_ += tensor_bytes(view);
  }

  // Dispatch and combine of one cached route, one after the other; the operations themselves keep
  // the ranks in step.
  void measure_round_trips() {
    const Route route = exchange_.route(inputs_.topk_idx(), route_options());
    group_.barrier();
    for (int i = -options_.warmup; i < options_.iters; ++i) {
      const std::int64_t ns = time_ns([&] {
        const Delivery delivery = exchange_.dispatch(route, inputs_.x(), dispatch_options());
        exchange_.combine(route, y_for(delivery), inputs_.out(), combine_options());
      });
      if (i >= 0) record_.round_trip_ns.push_back(ns);
    }
  }

  void finish_record() {
    const Counters counters = exchange_.counters();
    record_.rank = group_.rank();
    record_.check = merge(checks_);
    record_.arena_peak_bytes = counters.arena_peak_bytes;
    record_.output_bytes = delivery_bytes_ + own_y_bytes_;
    record_.staged_bytes = counters.staged_bytes;
    record_.dropped_rows = counters.dropped_rows;
    record_.wait_ns = counters.wait_ns;
    record_.wait_ns_by_peer = counters.wait_ns_by_peer;
  }

  const BenchOptions& options_;
  const Batch& batch_;
  Group group_;
  Exchange exchange_;
  Inputs inputs_;
  Progress progress_;
  TensorView y_;
  std::int64_t own_y_bytes_ = 0;
  std::int64_t delivery_bytes_ = 0;
  std::vector<CheckResult> checks_;
  RankRecord record_;
};

}  // namespace

ExchangeConfig make_config(const BenchOptions& options, const Batch& batch) {
  ExchangeConfig config;
  config.num_experts = batch.routing.num_experts;
  config.top_k = batch.routing.top_k;
  config.hidden = batch.hidden;
  config.max_tokens = std::max<std::int64_t>(batch.routing.max_tokens, 1);
  config.mode = options.mode;
  config.layout = batch.layout;
  if (config.num_experts % batch.num_ranks() != 0) config.expert_owner = batch.routing.expert_owner;
  config.num_threads = options.threads;
  return config;
}

int threads_per_rank(const BenchOptions& options, int num_local_ranks) {
  if (options.threads > 0) return options.threads;
  if (env().num_threads > 0) return env().num_threads;
  return std::max(1, static_cast<int>(allowed_cpus().size()) / std::max(num_local_ranks, 1));
}

RankRun run_rank(const BenchOptions& options,
                 const Batch& batch,
                 const Group& group,
                 bool has_progress) {
  return RankBench(options, batch, group, has_progress).run();
}

}  // namespace ferry::bench
