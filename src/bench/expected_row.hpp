#pragma once

#include <cstdint>
#include <vector>

#include "bench/batch.hpp"

namespace ferry::bench {

// One token as the oracle says it travels: its bytes, and its scales when it is quantised.
struct ExpectedRow {
  std::vector<std::uint16_t> bf16;      // [H], not quantised
  std::vector<std::uint8_t> fp8;        // [H], quantised
  std::vector<float> scales;            // [ceil(H/128)], what the row is multiplied by afterwards
  std::vector<std::uint8_t> exponents;  // [ceil(H/128)], of power-of-two scales
};

// Makes expected rows with the arithmetic of tests/support/oracle_numbers.hpp.
class ExpectedRows {
 public:
  explicit ExpectedRows(const Batch& batch);

  // Valid until the next call.
  [[nodiscard]] const ExpectedRow& of(int rank, std::int64_t token);

  // The same row as the experts see it, in fp32.
  [[nodiscard]] std::vector<float> values() const;

 private:
  void quantize_group(std::size_t group);

  const Batch& batch_;
  ExpectedRow row_;
  // Rows are whole numbers from -8 to 8: codes_[amax][value + 8] remembers the oracle's slow
  // answer.
  std::vector<std::vector<std::uint8_t>> codes_;
};

}  // namespace ferry::bench
