#pragma once

#include <memory>

#include "ferry/exchange.hpp"
#include "layout/arena_layout.hpp"
#include "plan/owner_map.hpp"

namespace ferry::detail {

// Everything that follows from a configuration and the number of ranks. Pure; the same on every
// rank.
struct ExchangePlan {
  std::shared_ptr<const plan::OwnerMap> owners;
  std::int64_t row_cap = 0;        // max_recv_rows, or the largest value
  std::int64_t delivery_rows = 0;  // that one slot of the ring holds
  std::int64_t max_row_bytes = 0;
  std::int64_t max_scale_bytes = 0;
  bool is_low_latency_expand = false;
  layout::ArenaLayout arena;
};

// Throws kInvalidArgument naming the field, got and expected.
[[nodiscard]] ExchangePlan plan_exchange(const ExchangeConfig& config, int num_ranks);

// Rows of a worst-case output: kByRank and kByExpert the same on every rank, kPadded this rank's.
[[nodiscard]] std::int64_t worst_case_output_rows(const ExchangeConfig& config,
                                                  const plan::OwnerMap& owners,
                                                  Layout layout,
                                                  std::int64_t row_cap,
                                                  int rank);

// Rows of address space that routes of `layout` need on the busiest rank.
[[nodiscard]] std::int64_t slot_rows(const ExchangeConfig& config,
                                     const plan::OwnerMap& owners,
                                     Layout layout,
                                     std::int64_t row_cap);

[[nodiscard]] MemoryNeed memory_need(const ExchangePlan& plan);

[[nodiscard]] const char* layout_name(Layout layout);

}  // namespace ferry::detail
