#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "ferry/exchange.hpp"
#include "plan/owner_map.hpp"
#include "plan/route_plan.hpp"
#include "plan/topk.hpp"

namespace ferry::engine {

// A route as this rank knows it. Planned once every rank's counts have been seen. An engine keeps
// more of it where it derives from this.
struct RouteState {
  virtual ~RouteState() = default;

  std::uint64_t sequence = 0;  // of the route operation; identifies the route in headers
  plan::RouteShape shape;
  Sizing sizing = Sizing::kExact;
  bool is_topk_int64 = true;
  bool is_overflow_error = true;
  std::int64_t num_tokens = 0;
  std::vector<std::int32_t> topk;  // [T * K]
  std::shared_ptr<const plan::OwnerMap> owners;

  bool is_planned = false;
  std::optional<Error> error;  // the route is unusable; the same on every rank
  plan::ReceivePlan receive;
  plan::SendPlan send;
  std::vector<std::int64_t> num_rows_of;   // [R], rows that each rank receives, capped
  std::vector<std::int64_t> local_counts;  // [E_l][R], rows of each local expert per source
  std::int64_t worst_rows = 0;             // rows of the outputs in worst-case sizing

  // int32 [num_rows, 2] source token and slot per delivered row, kept from the first dispatch: what
  // push combine needs.
  std::vector<std::int32_t> row_source;
  bool has_row_source = false;

  Counters counters;

  // Rows of the outputs as the caller sees them: those received (gaps included), or the worst case.
  [[nodiscard]] std::int64_t num_output_rows() const {
    return sizing == Sizing::kExact ? receive.num_rows : worst_rows;
  }
  [[nodiscard]] int num_local_experts(int rank) const { return owners->num_local(rank); }
};

}  // namespace ferry::engine
