#include "topo/nic_assignment.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/error.hpp"

namespace ferry::topo {

namespace {

using Cost = std::int64_t;
using Costs = std::vector<std::vector<Cost>>;  // [row][column], no more rows than columns

// The least sum over assignments of a column to each row, each column once: the Hungarian method
// with potentials, row by row. Columns and rows count from 1 inside; 0 stands for "none".
Cost least_sum(const Costs& costs) {
  constexpr Cost kInfinite = std::numeric_limits<Cost>::max() / 4;
  const std::size_t num_rows = costs.size();
  const std::size_t num_columns = num_rows == 0 ? 0 : costs[0].size();
  std::vector<Cost> row_potential(num_rows + 1);
  std::vector<Cost> column_potential(num_columns + 1);
  std::vector<std::size_t> row_of(num_columns + 1);
  for (std::size_t row = 1; row <= num_rows; ++row) {
    std::vector<Cost> slack(num_columns + 1, kInfinite);
    std::vector<bool> is_visited(num_columns + 1);
    std::vector<std::size_t> came_from(num_columns + 1);
    std::size_t column = 0;
    row_of[0] = row;
    while (row_of[column] != 0) {  // until a free column is reached
      is_visited[column] = true;
      const std::size_t at = row_of[column];
      std::size_t next = 0;
      Cost step = kInfinite;
      for (std::size_t other = 1; other <= num_columns; ++other) {
        if (is_visited[other]) continue;
        const Cost reduced = costs[at - 1][other - 1] - row_potential[at] - column_potential[other];
        if (reduced < slack[other]) {
          slack[other] = reduced;
          came_from[other] = column;
        }
        if (slack[other] < step) {
          step = slack[other];
          next = other;
        }
      }
      for (std::size_t other = 0; other <= num_columns; ++other) {
        if (is_visited[other]) {
          row_potential[row_of[other]] += step;
          column_potential[other] -= step;
        } else {
          slack[other] -= step;
        }
      }
      column = next;
    }
    for (; column != 0; column = came_from[column]) row_of[column] = row_of[came_from[column]];
  }
  return -column_potential[0];
}

// Without the first row and one column.
Costs without(const Costs& costs, std::size_t column) {
  Costs rest(costs.begin() + 1, costs.end());
  for (auto& row : rest) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  return rest;
}

}  // namespace

std::vector<int> assign_nics(const std::vector<std::vector<Distance>>& distances) {
  const std::size_t num_gpus = distances.size();
  const std::size_t num_nics = num_gpus == 0 ? 0 : distances[0].size();
  for (const auto& row : distances)
    FERRY_CHECK(row.size() == num_nics, ErrorCode::kInvalidArgument,
                "a GPU has {} distances to NICs, another {}", row.size(), num_nics);
  if (num_nics == 0) return std::vector<int>(num_gpus, -1);

  // A NIC has one place per round. A place of a later round costs more than all distances together,
  // so none is taken while one of an earlier round is free.
  const std::size_t num_rounds = (num_gpus + num_nics - 1) / num_nics;
  const Cost round_cost = static_cast<Cost>(num_gpus) * kNumDistances;
  Costs costs(num_gpus);
  std::vector<int> nic_at;  // of a column
  for (std::size_t round = 0; round < num_rounds; ++round) {
    for (std::size_t nic = 0; nic < num_nics; ++nic) {
      nic_at.push_back(static_cast<int>(nic));
      for (std::size_t gpu = 0; gpu < num_gpus; ++gpu)
        costs[gpu].push_back(static_cast<Cost>(distances[gpu][nic]) +
                             static_cast<Cost>(round) * round_cost);
    }
  }

  // GPU by GPU the lowest NIC with which the rest still reaches the least sum.
  std::vector<int> nic_of;
  Cost least = least_sum(costs);
  while (!costs.empty()) {
    std::vector<std::size_t> columns(nic_at.size());
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = i;
    std::stable_sort(columns.begin(), columns.end(),
                     [&](std::size_t a, std::size_t b) { return nic_at[a] < nic_at[b]; });
    for (const std::size_t column : columns) {
      const Costs rest = without(costs, column);
      const Cost rest_sum = least_sum(rest);
      if (costs[0][column] + rest_sum != least) continue;
      nic_of.push_back(nic_at[column]);
      nic_at.erase(nic_at.begin() + static_cast<std::ptrdiff_t>(column));
      costs = rest;
      least = rest_sum;
      break;
    }
  }
  return nic_of;
}

std::vector<int> nearest_nics(const std::vector<std::vector<Distance>>& distances) {
  std::vector<int> nearest;
  for (const auto& row : distances)
    nearest.push_back(
        row.empty() ? -1
                    : static_cast<int>(std::min_element(row.begin(), row.end()) - row.begin()));
  return nearest;
}

}  // namespace ferry::topo
