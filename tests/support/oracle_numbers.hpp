#pragma once

// The arithmetic of the oracle: bf16, fp8 e4m3 and sums, one value at a time. Must be compiled
// without fused multiply-add (-ffp-contract=off).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ferry::oracle {

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest even; every NaN becomes the canonical one.
inline std::uint16_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7FFF;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rest = bits & 0xFFFF;
  std::uint32_t high = bits >> 16;
  if (rest > 0x8000 || (rest == 0x8000 && (high & 1) == 1)) ++high;
  return static_cast<std::uint16_t>(high);
}

// bias + sum of rows in the given order, fp32; weights empty: unweighted. rows[i] is a term's row.
inline std::vector<float> sum(const std::vector<std::vector<float>>& rows,
                              const std::vector<float>& weights,
                              std::vector<float> accumulator) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < accumulator.size(); ++c) {
      const float term = weights.empty() ? rows[i][c] : weights[i] * rows[i][c];
      accumulator[c] = accumulator[c] + term;
    }
  return accumulator;
}

// fp8 e4m3fn: sign, 4 exponent bits (bias 7), 3 mantissa bits; 0x7F is NaN, 448 the largest value.
inline float from_e4m3(std::uint8_t code) {
  if ((code & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const int exponent = (code >> 3) & 0xF;
  const int mantissa = code & 0x7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The nearest value, the even code of two equally near; beyond 448 (and infinity) is 448.
inline std::uint8_t to_e4m3(float value) {
  if (std::isnan(value)) return 0x7F;
  const double magnitude = std::min(std::fabs(static_cast<double>(value)), 448.0);
  int best = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const double distance = std::fabs(from_e4m3(static_cast<std::uint8_t>(code)) - magnitude);
    const double least = std::fabs(from_e4m3(static_cast<std::uint8_t>(best)) - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(std::signbit(value) ? best | 0x80 : best);
}

// The scale of one group of up to 128 channels: what rows are multiplied by, and what is stored.
struct GroupScale {
  float multiplier = 1;
  float inverse = 1;
  std::uint8_t exponent = 0;  // of the inverse, power-of-two scales only
};

inline float finite_amax(const std::vector<float>& group) {
  float amax = 1e-4F;
  for (const float value : group)
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  return amax;
}

inline GroupScale scale_fp32(float amax) { return {448.0F / amax, amax * (1.0F / 448.0F), 0}; }

inline GroupScale scale_ue8m0(float amax) {
  int e = -127;  // the smallest power of two that is not below amax / 448
  while (std::ldexp(1.0, e) < static_cast<double>(amax * (1.0F / 448.0F))) ++e;
  return {std::ldexp(1.0F, -e), std::ldexp(1.0F, e), static_cast<std::uint8_t>(e + 127)};
}

}  // namespace ferry::oracle
