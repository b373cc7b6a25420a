#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/batch.hpp"
#include "bench/delivery_snapshot.hpp"
#include "ferry/exchange.hpp"

namespace ferry::bench {

struct CheckResult {
  std::int64_t rows_planned = 0;     // delivered rows that the oracle expects
  std::int64_t rows_compared = 0;    // of these, those that were there to be compared
  std::int64_t tokens_compared = 0;  // rows of combined output
  std::int64_t mismatches = 0;       // rows, scales, ids, weights, counts and results that differ
  std::string first_difference;      // one line; empty where nothing differs

  [[nodiscard]] bool is_ok() const { return mismatches == 0 && rows_compared == rows_planned; }
};

// Compares one rank's delivery with the oracle, bit for bit.
[[nodiscard]] CheckResult check_delivery(const Batch& batch,
                                         int rank,
                                         const DeliverySnapshot& seen);

// Compares one rank's combined output [T, H] bf16 with the oracle, bit for bit.
[[nodiscard]] CheckResult check_combined(const Batch& batch, int rank, const TensorView& out);

// Totals; the first difference is that of the first result that has one.
[[nodiscard]] CheckResult merge(std::span<const CheckResult> results);

}  // namespace ferry::bench
