#pragma once

#include <bit>
#include <cstdint>

// What the small IEEE-like formats share: fp16 and both fp8 are fp32 with fewer exponent and
// mantissa bits. Branch-free where it matters, so that loops over them vectorise. Assumes the
// default rounding mode of the processor.
namespace ferry::minifloat {

inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFF;
inline constexpr std::uint32_t kInfinity = 0x7F800000;

// condition ? a : b without a branch: compilers do not vectorise a conditional floating-point
// operation, and would make one of it.
[[nodiscard]] constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  return b ^ ((a ^ b) & (0U - static_cast<std::uint32_t>(condition)));
}

// The magnitude (fp32 bits without the sign, not NaN) as exponent and mantissa of the small format,
// rounded to nearest even. Subnormals are exact; values beyond the format give codes beyond its
// largest, in order, so that the caller saturates by comparing.
template <int kExponentBits, int kMantissaBits>
[[nodiscard]] constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr int kShift = 23 - kMantissaBits;
  constexpr auto kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kSmallestNormal = kRebias + (1U << 23);
  constexpr std::uint32_t kHalfUlp = (1U << (kShift - 1)) - 1;
  // At this magnitude one fp32 ulp is the smallest subnormal: the addition rounds for us.
  constexpr auto kAligner = static_cast<std::uint32_t>(127 + 1 - kBias + kShift) << 23;
  const std::uint32_t normal =
      (magnitude - kRebias + kHalfUlp + ((magnitude >> kShift) & 1)) >> kShift;
  const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - kAligner;
  return select(magnitude < kSmallestNormal, subnormal, normal);
}

// The reverse for finite codes: fp32 bits of an exponent and mantissa of the small format.
template <int kExponentBits, int kMantissaBits>
[[nodiscard]] constexpr std::uint32_t decode_magnitude(std::uint32_t code) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr int kShift = 23 - kMantissaBits;
  constexpr auto kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kSmallestNormal = kRebias + (1U << 23);
  const std::uint32_t bits = code << kShift;
  // A subnormal is its mantissa in units: set below an implied one, which is then subtracted.
  const float subnormal =
      std::bit_cast<float>(bits | kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
  return select(code < (1U << kMantissaBits), std::bit_cast<std::uint32_t>(subnormal),
                bits + kRebias);
}

}  // namespace ferry::minifloat
