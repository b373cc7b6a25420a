#include "bench/run.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/env.hpp"
#include "bench/bench_device.hpp"
#include "bench/host_views.hpp"
#include "bench/inputs.hpp"
#include "bench/poison.hpp"
#include "bench/progress.hpp"

namespace ferry::bench {

namespace {

// Deliveries come from a ring of three: so many iterations before the checked one leave poison.
constexpr int kPoisonedIterations = 3;
// Operations of one graph.
constexpr int kGraphRounds = 10;

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
        device_(open_bench_device(options, group.rank())),
        exchange_(group, make_config(options, batch, device_->device())),
        inputs_(*device_, batch, group.rank()),
        progress_(has_progress, options.warmup + options.iters + 2) {}

  RankRun run() {
    RankRun result;
    progress_.advance("ceiling");
    if (group_.rank() == 0 && options_.has_ceiling)
      result.ceiling = device_->measure_ceiling(2 * batch_.hidden);
    const int total = options_.warmup + options_.iters;
    for (int i = 0; i < total; ++i) {
      progress_.advance(i < options_.warmup ? "warm-up" : "measuring");
      iterate(i >= options_.warmup, total - 1 - i);
    }
    progress_.advance("finishing");
    if (options_.mode == Mode::kLowLatency) {
      measure_round_trips();
      result.ping_pong = measure_bare();
      if (DeviceGraphs* graphs = device_->graphs()) measure_graphs(*graphs);
    } else if (device_->runs_ahead()) {
      measure_back_to_back();
    }
    finish_record();
    result.record = std::move(record_);
    return result;
  }

 private:
  Route route(Sizing sizing) {
    RouteOptions options;
    options.sizing = sizing;
    return exchange_.route(inputs_.topk_idx(), options, device_->stream());
  }

  Delivery dispatch(const Route& route) {
    DispatchOptions options;
    options.topk_weights = inputs_.topk_weights();
    options.quantize = batch_.quantize;
    return exchange_.dispatch(route, inputs_.x(), options, device_->stream());
  }

  void combine(const Route& route, const TensorView& y) {
    CombineOptions options;
    options.form = options_.combine;
    if (batch_.is_weighted) options.topk_weights = inputs_.topk_weights();
    exchange_.combine(route, y, inputs_.out(), options, device_->stream());
  }

  // y of combine: the delivered rows themselves, or for fp8 rows bf16 memory of the arena, made for
  // the first delivery of a shape; others have the same, since the routing is the same.
  const TensorView& y_for(const Delivery& delivery) {
    const TensorView tokens = delivery.tokens();
    if (batch_.quantize == Quantize::kNone) return y_ = tokens;
    if (y_.is_given() && std::ranges::equal(y_.shape, tokens.shape)) return y_;
    const std::int64_t* shape = tokens.shape;
    y_ = tokens.num_dims == 2
             ? exchange_.allocate(DType::kBf16, {shape[0], shape[1]}, device_->stream())
             : exchange_.allocate(DType::kBf16, {shape[0], shape[1], shape[2]}, device_->stream());
    own_y_bytes_ += tensor_bytes(y_);
    return y_;
  }

  void iterate(bool is_timed, int remaining) {
    const bool is_checked = options_.is_checked && remaining == 0;
    const Counters before = exchange_.counters();
    Route fresh;
    group_.barrier();
    const std::int64_t route_ns = time_ns(*device_, [&] { fresh = route(options_.sizing); });
    const Counters routed = exchange_.counters();

    Delivery delivery;
    group_.barrier();
    const std::int64_t dispatch_ns = time_ns(*device_, [&] { delivery = dispatch(fresh); });
    const Counters dispatched = exchange_.counters();

    const DeliverySnapshot seen = snapshot(delivery, batch_.layout);
    const TensorView y = y_for(delivery);
    if (is_checked) check_and_apply(seen, y);

    const Counters prepared = exchange_.counters();
    group_.barrier();
    const std::int64_t combine_ns = time_ns(*device_, [&] { combine(fresh, y); });
    const Counters combined = exchange_.counters();

    if (is_checked) check_out();
    if (options_.is_checked && remaining > 0 && remaining <= kPoisonedIterations) {
      poison(*device_, batch_.layout, seen);
      poison(*device_, inputs_.out());
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

  // The pretended experts run on the host.
  void check_and_apply(const DeliverySnapshot& delivery, const TensorView& y) {
    HostViews views(*device_);
    const DeliverySnapshot seen = views.read(delivery);
    checks_.push_back(check_delivery(batch_, group_.rank(), seen));
    apply_experts(batch_, group_.rank(), seen, views.open(y));
    views.write_back(y);
  }

  void check_out() {
    HostViews views(*device_);
    checks_.push_back(check_combined(batch_, group_.rank(), views.read(inputs_.out())));
  }

  // Dispatch and combine of one cached route, one after the other; the operations themselves keep
  // the ranks in step.
  void measure_round_trips() {
    const Route cached = route(options_.sizing);
    group_.barrier();
    for (int i = -options_.warmup; i < options_.iters; ++i) {
      const std::int64_t ns = time_ns(*device_, [&] {
        const Delivery delivery = dispatch(cached);
        combine(cached, y_for(delivery));
      });
      if (i >= 0) record_.round_trip_ns.push_back(ns);
    }
  }

  PingPong measure_bare() {
    if (!device_->runs_ahead())
      return measure_ping_pong(group_, record_.dispatch.logical_bytes,
                               record_.combine.logical_bytes, std::max(options_.iters, 100));
    PingPong none;
    none.reason = "the ranks meet on the GPU, it would bounce its flag in the host's memory";
    return none;
  }

  // Microseconds of one of `num_operations` that `enqueue` puts on the stream, all ranks starting
  // together.
  template <typename Enqueue>
  double time_each_us(int num_operations, Enqueue&& enqueue) {
    group_.barrier();
    return static_cast<double>(time_ns(*device_, enqueue)) * 1e-3 / num_operations;
  }

  // Many operations between one pair of marks: marks between them cost time themselves, and spread
  // the ranks.
  void measure_back_to_back() {
    const Route cached = route(options_.sizing);
    Delivery delivery = dispatch(cached);
    delivery = dispatch(cached);  // both slots of the ring that are used in turn are warm now
    device_->synchronize();
    const auto repeat = [&](const auto& operation) {
      for (int i = 0; i < options_.iters; ++i) operation();
    };
    record_.batched.dispatch_us =
        time_each_us(options_.iters, [&] { repeat([&] { delivery = dispatch(cached); }); });
    const TensorView y = y_for(delivery);
    record_.batched.combine_us =
        time_each_us(options_.iters, [&] { repeat([&] { combine(cached, y); }); });
    // A route of exact sizing makes the host wait: here the host's clock counts.
    group_.barrier();
    const std::unique_ptr<BenchDevice> host = make_host_device();
    const std::int64_t ns = time_ns(*host, [&] {
      repeat([&] { delivery = dispatch(route(Sizing::kExact)); });
      device_->synchronize();
    });
    record_.batched.route_dispatch_us = static_cast<double>(ns) * 1e-3 / options_.iters;
  }

  // Rounds of one operation as a graph, replayed as often as there are iterations.
  void measure_graphs(DeviceGraphs& graphs) {
    const Route cached = route(Sizing::kWorstCase);
    const Delivery first = dispatch(cached);  // combine wants one before it, and its y
    const TensorView y = y_for(first);
    combine(cached, y);
    device_->synchronize();
    Delivery last;
    record_.graph.dispatch_us = time_graph_us(graphs, [&] { last = dispatch(cached); });
    record_.graph.combine_us = time_graph_us(graphs, [&] { combine(cached, y); });
  }

  template <typename Operation>
  double time_graph_us(DeviceGraphs& graphs, Operation&& operation) {
    const int graph = graphs.capture([&] {
      for (int i = 0; i < kGraphRounds; ++i) operation();
    });
    // Making a graph can need what another thread's rank holds while its kernels wait for this one.
    group_.barrier();
    graphs.replay(graph);  // the first run of a graph is no measure of it
    device_->synchronize();
    return time_each_us(options_.iters * kGraphRounds, [&] {
      for (int i = 0; i < options_.iters; ++i) graphs.replay(graph);
    });
  }

  void finish_record() {
    exchange_.check();  // what failed on a device after the last call
    const Counters counters = exchange_.counters();
    record_.rank = group_.rank();
    record_.device = device_->name();
    record_.num_devices = device_->num_devices();
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
  std::unique_ptr<BenchDevice> device_;
  Exchange exchange_;
  Inputs inputs_;
  Progress progress_;
  TensorView y_;
  std::int64_t own_y_bytes_ = 0;
  std::int64_t delivery_bytes_ = 0;
  std::vector<CheckResult> checks_;
  RankRecord record_;
};

// Rows of the busiest rank where every selection is a row.
std::int64_t most_expert_rows(const Batch& batch) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(batch.num_ranks()), 0);
  for (const std::vector<int>& topk : batch.routing.topk)
    for (const int expert : topk)
      if (expert >= 0)
        ++rows[static_cast<std::size_t>(
            batch.routing.expert_owner[static_cast<std::size_t>(expert)])];
  return std::max<std::int64_t>(*std::ranges::max_element(rows), 1);
}

}  // namespace

ExchangeConfig make_config(const BenchOptions& options, const Batch& batch, Device device) {
  ExchangeConfig config;
  config.device = device;
  config.num_experts = batch.routing.num_experts;
  config.top_k = batch.routing.top_k;
  config.hidden = batch.hidden;
  config.max_tokens = std::max<std::int64_t>(batch.routing.max_tokens, 1);
  config.mode = options.mode;
  config.layout = batch.layout;
  if (config.num_experts % batch.num_ranks() != 0) config.expert_owner = batch.routing.expert_owner;
  config.num_threads = options.threads;
  config.num_sms = options.sms;
  // A GPU's arena is made for the worst case, which by_expert is far from: 8 times this batch.
  if (device.kind == DeviceKind::kCuda && batch.layout == Layout::kByExpert)
    config.max_recv_rows = most_expert_rows(batch);
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
