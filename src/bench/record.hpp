#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/check.hpp"

namespace ferry::bench {

// One operation as one rank saw it.
struct OpRecord {
  std::vector<std::int64_t> ns;  // per timed iteration
  // Of one call; the same in every iteration, since the routing is.
  std::int64_t logical_bytes = 0;
  std::int64_t wire_bytes = 0;
  std::int64_t read_bytes = 0;     // of memory, row bytes
  std::int64_t written_bytes = 0;  // likewise
  std::int64_t staged_bytes = 0;
};

// Microseconds of one operation among many that were enqueued together; 0: not measured.
struct OpTimes {
  double dispatch_us = 0;
  double combine_us = 0;
  double route_dispatch_us = 0;  // both, the route new and of exact sizing
};

// What one rank tells rank 0 at the end.
struct RankRecord {
  int rank = 0;
  int threads = 0;      // CPU engine
  std::string device;   // the GPU's name; CUDA engine
  int num_devices = 0;  // GPUs that this rank could choose from
  OpRecord route;
  OpRecord dispatch;
  OpRecord combine;
  std::vector<std::int64_t> round_trip_ns;  // LL: dispatch and combine, back to back
  OpTimes batched;                          // HT, where operations run ahead of the host
  OpTimes graph;                            // LL, likewise, replayed
  CheckResult check;
  std::int64_t arena_peak_bytes = 0;
  std::int64_t output_bytes = 0;  // what the exchange holds for this rank's delivery and y
  std::int64_t staged_bytes = 0;  // whole run
  std::int64_t dropped_rows = 0;
  std::int64_t wait_ns = 0;
  std::vector<std::int64_t> wait_ns_by_peer;
};

// As it travels: JSON text. parse throws kInternal for text that format did not make.
[[nodiscard]] std::string format_record(const RankRecord& record);
[[nodiscard]] RankRecord parse_record(std::string_view text);

}  // namespace ferry::bench
