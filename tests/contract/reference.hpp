#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "contract/scenario.hpp"
#include "support/oracle.hpp"

// What the oracle says about a scenario, and comparisons that name the first difference.

namespace ferry::contract {

[[nodiscard]] oracle::Received expected_rows(const Scenario& scenario, int rank);

// Everything a delivery consists of: counts, offsets, rows, scales, ids, weights, where they came
// from, unused ids. Empty when right.
[[nodiscard]] std::string delivery_problem(const Scenario& scenario,
                                           int rank,
                                           const Received& received);

// Sums of a scenario, [T, H] of its sum type per rank, by docs/architecture.md, Numbers; y of every
// rank is rows_of().
class CombineReference {
 public:
  explicit CombineReference(const Scenario& scenario);
  [[nodiscard]] HostTensor sum(int rank) const;

 private:
  // Rows of a rank by (source rank, token, k that they serve); kByRank: k is -1.
  using RowIndex = std::map<std::tuple<int, std::int64_t, int>, std::int64_t>;

  const Scenario& scenario_;
  std::vector<RowIndex> index_;   // [R]
  std::vector<HostTensor> rows_;  // [R]
};
[[nodiscard]] HostTensor expected_sum(const Scenario& scenario, int rank);
[[nodiscard]] HostTensor expected_combined_weights(const Scenario& scenario, int rank);
[[nodiscard]] std::string combine_problem(const Scenario& scenario,
                                          int rank,
                                          const RankUnderTest::Combined& combined);

[[nodiscard]] std::string combine_problem(const Scenario& scenario,
                                          const CombineReference& reference,
                                          int rank,
                                          const RankUnderTest::Combined& combined);

// EXPECTs both on every rank, with the scenario in the message.
void expect_right(const Scenario& scenario,
                  const std::vector<RankResult>& results,
                  const RunOptions& options = {});

}  // namespace ferry::contract
