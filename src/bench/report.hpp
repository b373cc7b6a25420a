#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/batch.hpp"
#include "bench/ceiling.hpp"
#include "bench/options.hpp"
#include "bench/ping_pong.hpp"
#include "bench/record.hpp"

namespace ferry::bench {

// One operation over all ranks. Times are of the slowest rank of each iteration; bytes are of one
// call, summed over ranks; GB is 1e9 bytes and every rate is over the median.
struct OpReport {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  std::int64_t logical_bytes = 0;
  std::int64_t wire_bytes = 0;
  std::int64_t memory_bytes = 0;  // read and written
  std::int64_t staged_bytes = 0;
  double logical_gbs = 0;
  double wire_gbs = 0;
  double memory_gbs = 0;
  double ceiling_gbs = 0;
  double ceiling_ratio = 0;  // memory_gbs / ceiling_gbs
};

// DeepEP's way of counting (tests/legacy/test_intranode.py): rows that a rank received, its own
// included, times 2 H bytes (fp8: times 0.515625), over the mean time of that rank's call. Mean of
// the ranks.
struct DeepEpReport {
  double dispatch_gbs = 0;
  double combine_gbs = 0;
};

struct RoundTripReport {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  PingPong ping_pong;
  double ratio =
      0;  // median over the ping-pong with the same payload; 0 where that was not measured
};

struct Report {
  BenchOptions options;
  int ranks = 0;
  int nodes = 0;
  std::int64_t tokens = 0;  // the largest of any rank
  int experts = 0;
  int topk = 0;
  std::string host;
  int threads = 0;              // per rank; CPU engine
  std::string device;           // the GPU's name; CUDA engine
  bool is_card_shared = false;  // by several ranks of this host
  OpReport route;
  OpReport dispatch;
  OpReport combine;
  Ceiling ceiling;
  OpTimes batched;  // of the slowest rank; 0: not measured
  OpTimes graph;    // likewise
  bool has_round_trip = false;
  RoundTripReport round_trip;
  bool has_deepep = false;
  DeepEpReport deepep;
  CheckResult check;
  // Memory of the rank whose arena grew largest, beside what it is allowed: outputs + 10 % + 32
  // MiB.
  std::int64_t peak_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t peak_allowed_bytes = 0;
  std::int64_t staged_bytes = 0;  // copies beyond write-once, all ranks, whole run
  std::int64_t dropped_rows = 0;
  std::vector<std::int64_t> wait_ns;                       // [R]
  std::vector<std::vector<std::int64_t>> wait_ns_by_peer;  // [R][R]
};

// What is known besides the records.
struct ReportContext {
  const BenchOptions& options;
  const Batch& batch;
  int num_nodes = 1;
  int num_local_ranks = 1;  // on this host
  std::string host;
  Ceiling ceiling;
  PingPong ping_pong;
};

[[nodiscard]] Report make_report(const ReportContext& context, std::span<const RankRecord> records);

// One JSON object.
[[nodiscard]] std::string format_json(const Report& report);

// The table for people; colour only where asked for.
[[nodiscard]] std::string format_table(const Report& report, bool has_colour);

}  // namespace ferry::bench
