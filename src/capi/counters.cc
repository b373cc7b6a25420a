#include "capi/counters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "capi/sized_struct.hpp"

namespace ferry::capi {

void write_counters(const Counters& counters,
                    ferry_counters* out,
                    std::int64_t* wait_ns_by_peer,
                    std::size_t num_peers) {
  if (wait_ns_by_peer == nullptr) {
    FERRY_CHECK(num_peers == 0, ErrorCode::kInvalidArgument,
                "wait_ns_by_peer is NULL, expected an array of {} as num_peers says", num_peers);
  } else {
    FERRY_CHECK(num_peers == counters.wait_ns_by_peer.size(), ErrorCode::kInvalidArgument,
                "num_peers is {}, expected the number of ranks, {}", num_peers,
                counters.wait_ns_by_peer.size());
  }
  ferry_counters to{};
  to.dispatches = counters.dispatches;
  to.combines = counters.combines;
  to.dispatch_logical_bytes = counters.dispatch_logical_bytes;
  to.dispatch_wire_bytes = counters.dispatch_wire_bytes;
  to.combine_logical_bytes = counters.combine_logical_bytes;
  to.combine_wire_bytes = counters.combine_wire_bytes;
  to.memory_bytes_read = counters.memory_bytes_read;
  to.memory_bytes_written = counters.memory_bytes_written;
  to.staged_bytes = counters.staged_bytes;
  to.dropped_rows = counters.dropped_rows;
  to.arena_bytes = counters.arena_bytes;
  to.arena_peak_bytes = counters.arena_peak_bytes;
  to.wait_ns = counters.wait_ns;
  write_sized("ferry_counters", to, out);
  if (wait_ns_by_peer != nullptr)
    std::copy(counters.wait_ns_by_peer.begin(), counters.wait_ns_by_peer.end(), wait_ns_by_peer);
}

}  // namespace ferry::capi
