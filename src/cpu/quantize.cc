#include "cpu/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/fp8.hpp"
#include "base/ue8m0.hpp"
#include "cpu/row_codec.hpp"
#include "cpu/vector_loop.hpp"

namespace ferry::cpu {
namespace {

constexpr std::int64_t kGroupChannels = 128;
constexpr float kSmallestAmax = 1e-4F;
constexpr float kInverseMax = 1.0F / kE4m3Max;

// Groups are walked as words of two channels: hidden is a multiple of 8.
constexpr std::int64_t kChannelsPerWord = 2;

// The magnitude as an integer (they order alike), 0 for infinities and NaNs.
FERRY_INLINE_LOOP std::int32_t finite_magnitude(float value) noexcept {
  const std::int32_t magnitude = std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF;
  return magnitude & -static_cast<std::int32_t>(magnitude < 0x7F800000);
}

// Largest finite magnitude, at least kSmallestAmax.
FERRY_INLINE_LOOP float finite_amax(const std::byte* words, std::int64_t num_words) noexcept {
  std::int32_t even = std::bit_cast<std::int32_t>(kSmallestAmax);
  std::int32_t odd = even;
  for (std::int64_t i = 0; i < num_words; ++i) {
    const std::uint32_t word = load_word(words + 4 * i);
    even = std::max(even, finite_magnitude(Bf16Word::even(word)));
    odd = std::max(odd, finite_magnitude(Bf16Word::odd(word)));
  }
  return std::bit_cast<float>(std::max(even, odd));
}

FERRY_INLINE_LOOP void quantize_group(const std::byte* words,
                                      std::int64_t num_words,
                                      float scale,
                                      std::byte* out) noexcept {
  for (std::int64_t i = 0; i < num_words; ++i) {
    const std::uint32_t word = load_word(words + 4 * i);
    const std::uint32_t even = float_to_e4m3(Bf16Word::even(word) * scale);
    const std::uint32_t odd = float_to_e4m3(Bf16Word::odd(word) * scale);
    const auto pair = static_cast<std::uint16_t>(even | odd << 8);
    std::memcpy(out + 2 * i, &pair, sizeof(pair));
  }
}

// The number that multiplies a group's channels, and the stored one that undoes it.
struct GroupScale {
  float scale;
  float inverse;
};

GroupScale fp32_scale(float amax) { return {kE4m3Max / amax, amax * kInverseMax}; }

// Powers of two: both numbers are exact.
GroupScale ue8m0_scale(float amax) {
  const float inverse = ue8m0_to_float(float_to_ue8m0_up(amax * kInverseMax));
  return {1.0F / inverse, inverse};
}

template <Quantize kQuantize>
FERRY_INLINE_LOOP void quantize_groups(const std::byte* row,
                                       std::int64_t hidden,
                                       std::byte* out,
                                       std::byte* scales) noexcept {
  constexpr bool kIsUe8m0 = kQuantize == Quantize::kFp8Ue8m0;
  std::uint32_t packed = 0;  // of the group's word; bytes that no group fills are zero
  for (std::int64_t first = 0; first < hidden; first += kGroupChannels) {
    const std::byte* words = row + 2 * first;
    const std::int64_t num_words = std::min(kGroupChannels, hidden - first) / kChannelsPerWord;
    const float amax = finite_amax(words, num_words);
    const GroupScale group = kIsUe8m0 ? ue8m0_scale(amax) : fp32_scale(amax);
    quantize_group(words, num_words, group.scale, out + first);
    const auto inverse = std::bit_cast<std::uint32_t>(group.inverse);
    const std::int64_t at = first / kGroupChannels;
    if constexpr (kIsUe8m0) {
      packed = (at % 4 == 0 ? 0 : packed) | (inverse >> 23) << (8 * (at % 4));
      store_word(scales + at / 4 * 4, packed);
    } else {
      store_word(scales + at * 4, inverse);
    }
  }
}

FERRY_VECTOR_LOOP void quantize_fp8(const std::byte* row,
                                    std::int64_t hidden,
                                    std::byte* out,
                                    std::byte* scales) noexcept {
  quantize_groups<Quantize::kFp8>(row, hidden, out, scales);
}

FERRY_VECTOR_LOOP void quantize_fp8_ue8m0(const std::byte* row,
                                          std::int64_t hidden,
                                          std::byte* out,
                                          std::byte* scales) noexcept {
  quantize_groups<Quantize::kFp8Ue8m0>(row, hidden, out, scales);
}

}  // namespace

void quantize_row(Quantize quantize,
                  const std::uint16_t* row_bf16,
                  std::int64_t hidden,
                  std::uint8_t* out,
                  void* out_scales) noexcept {
  const auto* row = reinterpret_cast<const std::byte*>(row_bf16);
  auto* to = reinterpret_cast<std::byte*>(out);
  auto* scales = static_cast<std::byte*>(out_scales);
  if (quantize == Quantize::kFp8) quantize_fp8(row, hidden, to, scales);
  if (quantize == Quantize::kFp8Ue8m0) quantize_fp8_ue8m0(row, hidden, to, scales);
}

}  // namespace ferry::cpu
