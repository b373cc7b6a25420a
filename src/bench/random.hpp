#pragma once

#include <cstdint>

namespace ferry::bench {

// SplitMix64's finisher: a bijection that spreads every input bit.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Numbers that depend on nothing but what they are for, so that every rank can make every rank's.
class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t rank, std::uint64_t token) noexcept
      : state_(mix(mix(mix(seed) ^ rank) ^ token)) {}

  constexpr std::uint64_t next() noexcept { return mix(state_++); }

  // In (0, 1): never 0, so that its logarithm is finite.
  constexpr double next_unit() noexcept {
    return (static_cast<double>(next() >> 12) + 0.5) * 0x1.0p-52;
  }

  // In [0, bound); bound > 0. The bias of the multiplication is below bound / 2^64.
  constexpr std::uint64_t next_below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace ferry::bench
