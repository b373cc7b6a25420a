#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/route_state.hpp"

namespace ferry::cpu {

// Calls visit(first_row, num_rows, source, local_expert) for every run of delivered rows that came
// from one source (kByRank: local_expert is -1), in row order, gaps left out.
template <typename Visit>
void for_each_source_run(const RouteState& route, int num_ranks, const Visit& visit) {
  const plan::ReceivePlan& receive = route.receive;
  if (route.shape.layout == Layout::kByRank) {
    for (int source = 0; source < num_ranks; ++source) {
      const auto index = static_cast<std::size_t>(source);
      const std::int64_t first = receive.source_offsets[index];
      visit(first, receive.source_offsets[index + 1] - first, source, -1);
    }
    return;
  }
  for (std::size_t expert = 0; expert < receive.expert_counts.size(); ++expert) {
    std::int64_t row = receive.expert_offsets[expert];
    const std::int64_t end = row + receive.expert_counts[expert];  // a cap cuts the last sources
    for (int source = 0; source < num_ranks; ++source) {
      const std::int64_t sent = route.local_counts[expert * static_cast<std::size_t>(num_ranks) +
                                                   static_cast<std::size_t>(source)];
      const std::int64_t rows = std::min(sent, end - row);
      visit(row, rows, source, static_cast<int>(expert));
      row += rows;
    }
  }
}

// Calls visit(first_row, num_rows) for every run of rows that hold data, none of them empty; kByRank
// has at most one.
template <typename Visit>
void for_each_filled_run(const RouteState& route, const Visit& visit) {
  const plan::ReceivePlan& receive = route.receive;
  if (route.shape.layout == Layout::kByRank) {
    if (receive.num_rows > 0) visit(std::int64_t{0}, receive.num_rows);
    return;
  }
  for (std::size_t expert = 0; expert < receive.expert_counts.size(); ++expert)
    if (receive.expert_counts[expert] > 0)
      visit(receive.expert_offsets[expert], receive.expert_counts[expert]);
}

}  // namespace ferry::cpu
