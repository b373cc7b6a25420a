#include "bench/record.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ferry::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    OpRecord, ns, logical_bytes, wire_bytes, read_bytes, written_bytes, staged_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OpTimes, dispatch_us, combine_us, route_dispatch_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    CheckResult, rows_planned, rows_compared, tokens_compared, mismatches, first_difference)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankRecord,
                                   rank,
                                   threads,
                                   device,
                                   num_devices,
                                   route,
                                   dispatch,
                                   combine,
                                   round_trip_ns,
                                   batched,
                                   graph,
                                   check,
                                   arena_peak_bytes,
                                   output_bytes,
                                   staged_bytes,
                                   dropped_rows,
                                   wait_ns,
                                   wait_ns_by_peer)

std::string format_record(const RankRecord& record) {
  return nlohmann::json(record).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

RankRecord parse_record(std::string_view text) {
  try {
    return nlohmann::json::parse(text).get<RankRecord>();
  } catch (const nlohmann::json::exception& error) {
    FERRY_THROW(ErrorCode::kInternal, "a rank's record cannot be read: {}", error.what());
  }
}

}  // namespace ferry::bench
