#include <fmt/format.h>

#include <algorithm>

#include "base/human.hpp"
#include "bench/report.hpp"
#include "ferry/version.hpp"

namespace ferry::bench {

namespace {

// Colours, or nothing.
struct Paint {
  bool is_on = false;
  [[nodiscard]] std::string operator()(const char* code, const std::string& text) const {
    return is_on ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  [[nodiscard]] std::string bold(const std::string& text) const { return (*this)("1", text); }
  [[nodiscard]] std::string faint(const std::string& text) const { return (*this)("2", text); }
  [[nodiscard]] std::string good(const std::string& text) const { return (*this)("32", text); }
  [[nodiscard]] std::string bad(const std::string& text) const { return (*this)("31", text); }
};

// Three or four figures, with the unit that makes them so.
std::string format_us(double us) {
  if (us >= 1e6) return fmt::format("{:.3f} s ", us * 1e-6);
  if (us >= 1e3) return fmt::format("{:.2f} ms", us * 1e-3);
  return fmt::format("{:.1f} us", us);
}

std::string format_rate(double gbs) { return gbs > 0 ? fmt::format("{:.2f} GB/s", gbs) : "-"; }

std::string op_line(const char* name, const OpReport& op) {
  const std::string ratio =
      op.ceiling_ratio > 0.0005 ? fmt::format("{:.1f} %", 100 * op.ceiling_ratio) : "-";
  return fmt::format("  {:<9}{:>12}{:>12}{:>12}{:>14}{:>14}{:>14}{:>10}\n", name,
                     format_us(op.median_us), format_us(op.min_us), format_us(op.max_us),
                     format_rate(op.logical_gbs), format_rate(op.wire_gbs),
                     format_rate(op.memory_gbs), ratio);
}

// What moves the rows of each rank.
std::string movers(const Report& report) {
  const BenchOptions& options = report.options;
  if (!is_cuda(options))
    return fmt::format("{} {} each", report.threads, report.threads == 1 ? "thread" : "threads");
  const std::string sms = options.sms > 0 ? fmt::format("{} SMs each", options.sms)
                                          : std::string("as many SMs as the plan chooses");
  return fmt::format("{}{}, {}", report.device, report.is_card_shared ? " (shared card)" : "", sms);
}

std::string title(const Report& report) {
  const BenchOptions& options = report.options;
  return fmt::format(
      "{} {} {}: {} {}{} on {}, {}\n"
      "  up to {} tokens a rank, hidden {}, {} experts, top-{}, {}, {} {}{}, routing {}\n",
      options.engine, mode_name(options.mode), "exchange", report.ranks,
      report.ranks == 1 ? "rank" : "ranks", options.has_thread_ranks ? " (threads)" : "",
      report.host, movers(report), report.tokens, options.hidden, report.experts, report.topk,
      options.dtype, layout_name(options.layout), sizing_name(options.sizing),
      options.is_weighted ? " weighted" : "", options.routing);
}

std::string ceiling_line(const Ceiling& ceiling) {
  const std::string threads =
      ceiling.threads > 0
          ? fmt::format(", {} {}", ceiling.threads, ceiling.threads == 1 ? "thread" : "threads")
          : std::string();
  return fmt::format("  ceiling      {:.2f} GB/s read and written ({}{})\n", ceiling.gbs,
                     ceiling.kind, threads);
}

// Operations that were enqueued together.
std::string ahead_lines(const Report& report) {
  std::string text;
  if (report.batched.dispatch_us > 0)
    text += fmt::format(
        "  back to back dispatch {}, combine {}, new route and dispatch {}; slowest rank, {} of "
        "each\n",
        format_us(report.batched.dispatch_us), format_us(report.batched.combine_us),
        format_us(report.batched.route_dispatch_us), report.options.iters);
  if (report.graph.dispatch_us > 0)
    text += fmt::format("  in graphs    dispatch {}, combine {}; slowest rank, {} replays\n",
                        format_us(report.graph.dispatch_us), format_us(report.graph.combine_us),
                        report.options.iters);
  return text;
}

std::string round_trip_lines(const RoundTripReport& trip) {
  std::string text =
      fmt::format("  round trip   {} median ({} to {}), dispatch and combine back to back\n",
                  format_us(trip.median_us), format_us(trip.min_us), format_us(trip.max_us));
  const PingPong& bare = trip.ping_pong;
  if (!bare.is_measured)
    return text + fmt::format("  ping-pong    not measured: {}\n", bare.reason);
  return text +
         fmt::format(
             "  ping-pong    {} bare, {} with {} out and {} back; round trip is {:.2f} times "
             "the latter\n",
             format_us(bare.flag_us), format_us(bare.payload_us), human_bytes(bare.ping_bytes),
             human_bytes(bare.pong_bytes), trip.ratio);
}

// Pages follow use on the CPU; on a GPU the arena is made once, for the configured worst case.
std::string memory_line(const Report& report) {
  if (!report.device.empty())
    return fmt::format("  memory       arena {} a rank, fixed; outputs {}\n",
                       human_bytes(report.peak_bytes), human_bytes(report.output_bytes));
  return fmt::format("  memory       peak {} a rank; outputs {}, allowed {}\n",
                     human_bytes(report.peak_bytes), human_bytes(report.output_bytes),
                     human_bytes(report.peak_allowed_bytes));
}

// Which peers the ranks waited for most.
std::string wait_line(const Report& report) {
  std::vector<std::int64_t> by_peer(static_cast<std::size_t>(report.ranks));
  std::int64_t total = 0;
  for (const auto& row : report.wait_ns_by_peer)
    for (std::size_t peer = 0; peer < std::min(row.size(), by_peer.size()); ++peer) {
      by_peer[peer] += row[peer];
      total += row[peer];
    }
  if (total == 0) return "  waited       not at all\n";
  const auto most = std::ranges::max_element(by_peer);
  const double share = static_cast<double>(*most) / static_cast<double>(total);
  return fmt::format("  waited       {} over all ranks, {:.0f} % of it for rank {}\n",
                     format_us(static_cast<double>(total) * 1e-3), 100 * share,
                     most - by_peer.begin());
}

std::string check_line(const Report& report, const Paint& paint) {
  if (!report.options.is_checked) return "  check        not asked for; try: --check\n";
  const CheckResult& check = report.check;
  if (check.is_ok())
    return fmt::format(
        "  check        {}: {} rows and {} results compared with the oracle, bit for bit\n",
        paint.good("ok"), check.rows_compared, check.tokens_compared);
  return fmt::format(
      "  check        {}: {} differences, {} of {} rows compared\n  first        {}\n",
      paint.bad("FAILED"), check.mismatches, check.rows_compared, check.rows_planned,
      check.first_difference);
}

}  // namespace

std::string format_table(const Report& report, bool has_colour) {
  const Paint paint{has_colour};
  std::string text = paint.bold(fmt::format("ferry {} ", version())) + title(report) + "\n";
  text += paint.faint(fmt::format("  {:<9}{:>12}{:>12}{:>12}{:>14}{:>14}{:>14}{:>10}\n", "",
                                  "median", "min", "max", "logical", "wire", "memory", "ceiling"));
  text += op_line("route", report.route);
  text += op_line("dispatch", report.dispatch);
  text += op_line("combine", report.combine);
  text += fmt::format(
      "\n  times are the slowest rank's over {} iterations, rates those of all ranks together\n",
      report.options.iters);
  if (report.ceiling.gbs > 0) text += ceiling_line(report.ceiling);
  text += ahead_lines(report);
  if (report.has_round_trip) text += round_trip_lines(report.round_trip);
  if (report.has_deepep)
    text += fmt::format(
        "  as DeepEP    dispatch {:.2f} GB/s, combine {:.2f} GB/s a rank, own rows included\n",
        report.deepep.dispatch_gbs, report.deepep.combine_gbs);
  text += memory_line(report);
  text += fmt::format("  copies       {} beyond write-once\n", human_bytes(report.staged_bytes));
  text += wait_line(report);
  return text + check_line(report, paint);
}

}  // namespace ferry::bench
