#include "bench/expected_row.hpp"

#include <algorithm>
#include <cmath>

#include "support/oracle_numbers.hpp"

namespace ferry::bench {

namespace {

constexpr std::size_t kGroup = 128;
constexpr int kNumValues = 2 * kLargestValue + 1;

oracle::GroupScale group_scale(Quantize quantize, int amax) {
  const float at_least = std::max(static_cast<float>(amax), 1e-4F);
  return quantize == Quantize::kFp8 ? oracle::scale_fp32(at_least) : oracle::scale_ue8m0(at_least);
}

}  // namespace

ExpectedRows::ExpectedRows(const Batch& batch) : batch_(batch) {
  const auto hidden = static_cast<std::size_t>(batch.hidden);
  row_.bf16.resize(hidden);
  if (batch.quantize == Quantize::kNone) return;
  row_.fp8.resize(hidden);
  row_.scales.resize((hidden + kGroup - 1) / kGroup);
  row_.exponents.resize(row_.scales.size());
  for (int amax = 0; amax <= kLargestValue; ++amax) {
    const float multiplier = group_scale(batch.quantize, amax).multiplier;
    std::vector<std::uint8_t>& codes = codes_.emplace_back();
    for (int i = 0; i < kNumValues; ++i)
      codes.push_back(oracle::to_e4m3(static_cast<float>(i - kLargestValue) * multiplier));
  }
}

const ExpectedRow& ExpectedRows::of(int rank, std::int64_t token) {
  fill_row(batch_, rank, token, row_.bf16);
  for (std::size_t group = 0; group < row_.scales.size(); ++group) quantize_group(group);
  return row_;
}

void ExpectedRows::quantize_group(std::size_t group) {
  const std::size_t begin = group * kGroup;
  const std::size_t end = std::min(begin + kGroup, row_.bf16.size());
  int amax = 0;
  for (std::size_t c = begin; c < end; ++c)
    amax = std::max(amax, static_cast<int>(std::fabs(oracle::from_bf16(row_.bf16[c]))));
  const oracle::GroupScale scale = group_scale(batch_.quantize, amax);
  row_.scales[group] = scale.inverse;
  row_.exponents[group] = scale.exponent;
  const std::vector<std::uint8_t>& codes = codes_[static_cast<std::size_t>(amax)];
  for (std::size_t c = begin; c < end; ++c) {
    const int value = static_cast<int>(oracle::from_bf16(row_.bf16[c]));
    row_.fp8[c] = codes[static_cast<std::size_t>(value + kLargestValue)];
  }
}

std::vector<float> ExpectedRows::values() const {
  std::vector<float> values(row_.bf16.size());
  for (std::size_t c = 0; c < values.size(); ++c)
    values[c] = row_.fp8.empty() ? oracle::from_bf16(row_.bf16[c])
                                 : oracle::from_e4m3(row_.fp8[c]) * row_.scales[c / kGroup];
  return values;
}

}  // namespace ferry::bench
