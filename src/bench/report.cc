#include "bench/report.hpp"

#include <algorithm>
#include <numeric>

namespace ferry::bench {

namespace {

// Microseconds of the slowest rank per iteration, ascending.
std::vector<double> slowest_us(std::span<const RankRecord> records,
                               const std::vector<std::int64_t>& (*ns_of)(const RankRecord&)) {
  std::vector<double> slowest;
  for (const RankRecord& record : records) {
    const std::vector<std::int64_t>& ns = ns_of(record);
    slowest.resize(std::max(slowest.size(), ns.size()));
    for (std::size_t i = 0; i < ns.size(); ++i)
      slowest[i] = std::max(slowest[i], static_cast<double>(ns[i]) * 1e-3);
  }
  std::ranges::sort(slowest);
  return slowest;
}

double median_of(const std::vector<double>& sorted) {
  if (sorted.empty()) return 0;
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double gbs(std::int64_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
}

template <OpRecord RankRecord::*Op>
OpReport make_op(std::span<const RankRecord> records, double ceiling_gbs) {
  OpReport op;
  const std::vector<double> us = slowest_us(
      records,
      [](const RankRecord& record) -> const std::vector<std::int64_t>& { return (record.*Op).ns; });
  op.median_us = median_of(us);
  op.min_us = us.empty() ? 0 : us.front();
  op.max_us = us.empty() ? 0 : us.back();
  for (const RankRecord& record : records) {
    const OpRecord& own = record.*Op;
    op.logical_bytes += own.logical_bytes;
    op.wire_bytes += own.wire_bytes;
    op.memory_bytes += own.read_bytes + own.written_bytes;
    op.staged_bytes += own.staged_bytes;
  }
  op.logical_gbs = gbs(op.logical_bytes, op.median_us);
  op.wire_gbs = gbs(op.wire_bytes, op.median_us);
  op.memory_gbs = gbs(op.memory_bytes, op.median_us);
  op.ceiling_gbs = ceiling_gbs;
  op.ceiling_ratio = ceiling_gbs > 0 ? op.memory_gbs / ceiling_gbs : 0;
  return op;
}

double mean_us(const std::vector<std::int64_t>& ns) {
  if (ns.empty()) return 0;
  const auto sum = std::accumulate(ns.begin(), ns.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(ns.size()) * 1e-3;
}

DeepEpReport make_deepep(const Batch& batch, std::span<const RankRecord> records) {
  const double factor = batch.quantize == Quantize::kNone ? 1.0 : 0.515625;
  const std::vector<ReceivedLoad> loads = count_received(batch.routing);
  DeepEpReport deepep;
  for (const RankRecord& record : records) {
    const ReceivedLoad& load = loads[static_cast<std::size_t>(record.rank)];
    const std::int64_t bytes = load.num_tokens * batch.hidden * 2;
    deepep.dispatch_gbs += factor * gbs(bytes, mean_us(record.dispatch.ns));
    deepep.combine_gbs += gbs(bytes, mean_us(record.combine.ns));
  }
  deepep.dispatch_gbs /= static_cast<double>(records.size());
  deepep.combine_gbs /= static_cast<double>(records.size());
  return deepep;
}

RoundTripReport make_round_trip(const PingPong& ping_pong, std::span<const RankRecord> records) {
  const std::vector<double> us =
      slowest_us(records, [](const RankRecord& record) -> const std::vector<std::int64_t>& {
        return record.round_trip_ns;
      });
  RoundTripReport report;
  report.median_us = median_of(us);
  report.min_us = us.empty() ? 0 : us.front();
  report.max_us = us.empty() ? 0 : us.back();
  report.ping_pong = ping_pong;
  if (ping_pong.payload_us > 0) report.ratio = report.median_us / ping_pong.payload_us;
  return report;
}

template <OpTimes RankRecord::*Times>
OpTimes slowest(std::span<const RankRecord> records) {
  OpTimes times;
  for (const RankRecord& record : records) {
    const OpTimes& own = record.*Times;
    times.dispatch_us = std::max(times.dispatch_us, own.dispatch_us);
    times.combine_us = std::max(times.combine_us, own.combine_us);
    times.route_dispatch_us = std::max(times.route_dispatch_us, own.route_dispatch_us);
  }
  return times;
}

void add_memory(Report& report, std::span<const RankRecord> records) {
  for (const RankRecord& record : records) {
    report.staged_bytes += record.staged_bytes;
    report.dropped_rows += record.dropped_rows;
    report.wait_ns.push_back(record.wait_ns);
    report.wait_ns_by_peer.push_back(record.wait_ns_by_peer);
    if (record.arena_peak_bytes < report.peak_bytes) continue;
    report.peak_bytes = record.arena_peak_bytes;
    report.output_bytes = record.output_bytes;
    report.peak_allowed_bytes =
        record.output_bytes + record.output_bytes / 10 + (std::int64_t{32} << 20);
  }
}

}  // namespace

Report make_report(const ReportContext& context, std::span<const RankRecord> records) {
  const RoutingTable& routing = context.batch.routing;
  Report report;
  report.options = context.options;
  report.ranks = context.batch.num_ranks();
  report.nodes = context.num_nodes;
  report.tokens = routing.max_tokens;
  report.experts = routing.num_experts;
  report.topk = routing.top_k;
  report.host = context.host;
  report.ceiling = context.ceiling;
  for (const RankRecord& record : records)
    report.threads = std::max(report.threads, record.threads);
  report.device = records[0].device;
  report.is_card_shared =
      records[0].num_devices > 0 && context.num_local_ranks > records[0].num_devices;
  report.route = make_op<&RankRecord::route>(records, context.ceiling.gbs);
  report.dispatch = make_op<&RankRecord::dispatch>(records, context.ceiling.gbs);
  report.combine = make_op<&RankRecord::combine>(records, context.ceiling.gbs);
  report.batched = slowest<&RankRecord::batched>(records);
  report.graph = slowest<&RankRecord::graph>(records);
  report.has_round_trip = context.options.mode == Mode::kLowLatency;
  if (report.has_round_trip) report.round_trip = make_round_trip(context.ping_pong, records);
  report.has_deepep = !context.options.preset.empty();
  if (report.has_deepep) report.deepep = make_deepep(context.batch, records);
  std::vector<CheckResult> checks;
  for (const RankRecord& record : records) checks.push_back(record.check);
  report.check = merge(checks);
  add_memory(report, records);
  return report;
}

}  // namespace ferry::bench
