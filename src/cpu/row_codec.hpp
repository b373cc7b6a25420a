#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/fp16.hpp"
#include "cpu/vector_loop.hpp"

// Rows as 32-bit words, so that loops over 16-bit elements need no lane crossing: the low half of a
// word is the even channel, the high half the odd one. pack() rounds to nearest even and makes NaNs
// canonical.
namespace ferry::cpu {

FERRY_INLINE_LOOP std::uint32_t load_word(const std::byte* at) noexcept {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

FERRY_INLINE_LOOP void store_word(std::byte* at, std::uint32_t word) noexcept {
  std::memcpy(at, &word, sizeof(word));
}

struct Bf16Word {
  static constexpr int kChannels = 2;

  FERRY_INLINE_LOOP static float even(std::uint32_t word) noexcept {
    return std::bit_cast<float>(word << 16);
  }
  FERRY_INLINE_LOOP static float odd(std::uint32_t word) noexcept {
    return std::bit_cast<float>(word & 0xFFFF0000U);
  }
  FERRY_INLINE_LOOP static std::uint32_t pack(float even, float odd) noexcept {
    return (round(even) >> 16) | (round(odd) & 0xFFFF0000U);
  }

 private:
  // The result is in the upper half.
  FERRY_INLINE_LOOP static std::uint32_t round(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
    return value != value ? 0x7FFF0000U : rounded;
  }
};

struct Fp16Word {
  static constexpr int kChannels = 2;

  FERRY_INLINE_LOOP static float even(std::uint32_t word) noexcept {
    return fp16_to_float(static_cast<std::uint16_t>(word));
  }
  FERRY_INLINE_LOOP static float odd(std::uint32_t word) noexcept {
    return fp16_to_float(static_cast<std::uint16_t>(word >> 16));
  }
  FERRY_INLINE_LOOP static std::uint32_t pack(float even, float odd) noexcept {
    return float_to_fp16(even) | static_cast<std::uint32_t>(float_to_fp16(odd)) << 16;
  }
};

struct Fp32Word {
  static constexpr int kChannels = 1;

  FERRY_INLINE_LOOP static float even(std::uint32_t word) noexcept {
    return std::bit_cast<float>(word);
  }
  FERRY_INLINE_LOOP static std::uint32_t pack(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return value != value ? 0x7FFFFFFFU : bits;
  }
};

}  // namespace ferry::cpu
