#include <nlohmann/json.hpp>

#include "bench/report.hpp"
#include "ferry/version.hpp"

namespace ferry::bench {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const OpReport& op) {
  return {{"median_us", op.median_us},
          {"min_us", op.min_us},
          {"max_us", op.max_us},
          {"logical_bytes", op.logical_bytes},
          {"wire_bytes", op.wire_bytes},
          {"logical_gbs", op.logical_gbs},
          {"wire_gbs", op.wire_gbs},
          {"memory_bytes", op.memory_bytes},
          {"memory_gbs", op.memory_gbs},
          {"ceiling_gbs", op.ceiling_gbs},
          {"ceiling_ratio", op.ceiling_ratio},
          {"staged_bytes", op.staged_bytes}};
}

Json to_json(const CheckResult& check) {
  Json json = {{"ok", check.is_ok()},
               {"rows_planned", check.rows_planned},
               {"rows_compared", check.rows_compared},
               {"tokens_compared", check.tokens_compared},
               {"mismatches", check.mismatches}};
  if (!check.first_difference.empty()) json["first_difference"] = check.first_difference;
  return json;
}

Json to_json(const RoundTripReport& trip) {
  Json json = {{"median_us", trip.median_us}, {"min_us", trip.min_us}, {"max_us", trip.max_us}};
  const PingPong& ping_pong = trip.ping_pong;
  if (!ping_pong.is_measured) {
    json["ping_pong"] = nullptr;
    json["ping_pong_missing"] = ping_pong.reason;
    return json;
  }
  json["ping_pong"] = {{"flag_us", ping_pong.flag_us},
                       {"payload_us", ping_pong.payload_us},
                       {"ping_bytes", ping_pong.ping_bytes},
                       {"pong_bytes", ping_pong.pong_bytes}};
  json["ratio"] = trip.ratio;
  return json;
}

Json ceiling_json(const Report& report) {
  const Ceiling& ceiling = report.ceiling;
  Json json = {{"gbs", ceiling.gbs}};
  if (!is_cuda(report.options)) json["threads"] = ceiling.threads;
  json["kind"] = ceiling.kind;
  json["buffer_bytes"] = ceiling.buffer_bytes;
  return json;
}

// What moves the rows: threads of the host, or multiprocessors of a GPU.
void add_movers(Json& json, const Report& report) {
  if (!is_cuda(report.options)) {
    json["threads"] = report.threads;
    return;
  }
  json["sms"] = report.options.sms;
  json["device"] = report.device;
  json["shared_card"] = report.is_card_shared;
}

}  // namespace

std::string format_json(const Report& report) {
  const BenchOptions& options = report.options;
  Json json = {{"schema", "ferry.bench/1"}, {"ferry_version", version()}, {"host", report.host}};
  add_movers(json, report);
  json.update({{"engine", options.engine},
               {"ranks", report.ranks},
               {"nodes", report.nodes},
               {"tokens", report.tokens},
               {"hidden", options.hidden},
               {"experts", report.experts},
               {"topk", report.topk},
               {"dtype", options.dtype},
               {"mode", mode_name(options.mode)},
               {"layout", layout_name(options.layout)},
               {"sizing", sizing_name(options.sizing)},
               {"combine_form", combine_name(options.combine)},
               {"weighted", options.is_weighted},
               {"routing", options.routing},
               {"seed", options.seed},
               {"iters", options.iters},
               {"route", to_json(report.route)},
               {"dispatch", to_json(report.dispatch)},
               {"combine", to_json(report.combine)}});
  if (options.has_thread_ranks) json["thread_ranks"] = true;
  if (report.batched.dispatch_us > 0)
    json["batched"] = {{"dispatch_us", report.batched.dispatch_us},
                       {"combine_us", report.batched.combine_us},
                       {"route_dispatch_us", report.batched.route_dispatch_us}};
  if (report.graph.dispatch_us > 0)
    json["graph"] = {{"dispatch_us", report.graph.dispatch_us},
                     {"combine_us", report.graph.combine_us}};
  json["ceiling"] = ceiling_json(report);
  if (report.has_round_trip) json["round_trip"] = to_json(report.round_trip);
  if (report.has_deepep)
    json["deepep"] = {{"dispatch_gbs", report.deepep.dispatch_gbs},
                      {"combine_gbs", report.deepep.combine_gbs}};
  json["check"] = options.is_checked ? to_json(report.check) : Json(nullptr);
  json["peak_bytes"] = report.peak_bytes;
  json["output_bytes"] = report.output_bytes;
  json["peak_allowed_bytes"] = report.peak_allowed_bytes;
  json["counters"] = {{"staged_bytes", report.staged_bytes},
                      {"dropped_rows", report.dropped_rows},
                      {"wait_ns", report.wait_ns},
                      {"wait_ns_by_peer", report.wait_ns_by_peer}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace ferry::bench
