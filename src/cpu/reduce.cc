#include "cpu/reduce.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cpu/row_codec.hpp"
#include "cpu/streaming.hpp"
#include "cpu/vector_loop.hpp"

namespace ferry::cpu {
namespace {

// Words of a row that are summed before the next ones: accumulators and result stay in the
// first-level cache, and every row is read in runs of whole lines.
constexpr std::size_t kBlockWords = 512;

// A sum that stays in registers hands its result over in pieces of this size: whole lines, so that
// they can be streamed, and long enough for the compiler to vectorise.
constexpr std::size_t kPieceWords = 64;

const std::byte* bytes_of(const void* pointer) { return static_cast<const std::byte*>(pointer); }

// Accumulators of one block: the channels of word i are even[i] and odd[i].
struct Accumulators {
  alignas(64) float even[kBlockWords];
  alignas(64) float odd[kBlockWords];
};

template <bool kIsWeighted>
FERRY_INLINE_LOOP float add(float sum, float weight, float value) noexcept {
  return kIsWeighted ? sum + weight * value : sum + value;
}

template <typename Word>
FERRY_INLINE_LOOP std::uint32_t pack_word(float even, float odd) noexcept {
  if constexpr (Word::kChannels == 2) {
    return Word::pack(even, odd);
  } else {
    return Word::pack(even);
  }
}

// Adds kRows rows in order, each channel on its own; the accumulators are loaded and stored once.
template <typename Word, bool kIsWeighted, std::size_t... kRows>
FERRY_INLINE_LOOP void add_rows(Accumulators& sums,
                                std::size_t num_words,
                                const std::byte* const (&rows)[sizeof...(kRows)],
                                const float (&weights)[sizeof...(kRows)],
                                std::index_sequence<kRows...>) noexcept {
  for (std::size_t i = 0; i < num_words; ++i) {
    const std::uint32_t words[] = {load_word(rows[kRows] + 4 * i)...};
    float even = sums.even[i];
    ((even = add<kIsWeighted>(even, weights[kRows], Word::even(words[kRows]))), ...);
    sums.even[i] = even;
    if constexpr (Word::kChannels == 2) {
      float odd = sums.odd[i];
      ((odd = add<kIsWeighted>(odd, weights[kRows], Word::odd(words[kRows]))), ...);
      sums.odd[i] = odd;
    }
  }
}

// Rows first..first+kNum of the arguments.
template <typename Word, bool kIsWeighted, std::size_t kNum>
FERRY_INLINE_LOOP void add_group(Accumulators& sums,
                                 std::size_t num_words,
                                 const SumArgs& args,
                                 std::size_t first,
                                 std::size_t offset) noexcept {
  const std::byte* rows[kNum];
  float weights[kNum];
  for (std::size_t i = 0; i < kNum; ++i) {
    rows[i] = bytes_of(args.rows[first + i]) + offset;
    weights[i] = kIsWeighted ? args.weights[first + i] : 1.0F;
  }
  add_rows<Word, kIsWeighted>(sums, num_words, rows, weights, std::make_index_sequence<kNum>());
}

template <typename Word, bool kIsWeighted>
FERRY_INLINE_LOOP void add_all(Accumulators& sums,
                               std::size_t num_words,
                               const SumArgs& args,
                               std::size_t offset) noexcept {
  std::size_t row = 0;
  for (; row + 4 <= args.rows.size(); row += 4) {
    add_group<Word, kIsWeighted, 4>(sums, num_words, args, row, offset);
  }
  for (; row < args.rows.size(); ++row) {
    add_group<Word, kIsWeighted, 1>(sums, num_words, args, row, offset);
  }
}

template <typename Word>
FERRY_INLINE_LOOP void add_bias(Accumulators& sums,
                                std::size_t num_words,
                                const void* bias,
                                std::size_t offset) noexcept {
  add_rows<Word, false>(sums, num_words, {bytes_of(bias) + offset}, {1.0F},
                        std::index_sequence<0>());
}

// A finished piece of a row, from the first-level cache to its place.
FERRY_INLINE_LOOP void store_words(std::byte* out,
                                   const std::uint32_t* words,
                                   std::size_t num_words,
                                   bool is_streamed) noexcept {
  const auto* from = reinterpret_cast<const std::byte*>(words);
  if (is_streamed) {
    stream_lines(out, from, 4 * num_words / kLineBytes);
  } else {
    std::memcpy(out, from, 4 * num_words);
  }
}

template <typename Word>
FERRY_INLINE_LOOP void sum_block(const SumArgs& args,
                                 std::size_t offset,
                                 std::size_t num_words) noexcept {
  Accumulators sums;
  if (args.bias == nullptr) {
    std::fill_n(sums.even, num_words, 0.0F);
    std::fill_n(sums.odd, num_words, 0.0F);
  } else {
    // Not 0 + bias: the sum starts at the bias, so that -0 alone stays -0.
    const std::byte* bias = bytes_of(args.bias) + offset;
    for (std::size_t i = 0; i < num_words; ++i) {
      sums.even[i] = Word::even(load_word(bias + 4 * i));
      if constexpr (Word::kChannels == 2) sums.odd[i] = Word::odd(load_word(bias + 4 * i));
    }
  }
  if (args.second_bias != nullptr) add_bias<Word>(sums, num_words, args.second_bias, offset);
  if (args.weights != nullptr) {
    add_all<Word, true>(sums, num_words, args, offset);
  } else {
    add_all<Word, false>(sums, num_words, args, offset);
  }
  alignas(64) std::uint32_t words[kBlockWords];
  for (std::size_t i = 0; i < num_words; ++i) words[i] = pack_word<Word>(sums.even[i], sums.odd[i]);
  store_words(static_cast<std::byte*>(args.out) + offset, words, num_words, args.is_streamed);
}

// The whole sum of a few rows without bias, in registers.
template <typename Word, bool kIsWeighted, std::size_t... kRows>
FERRY_INLINE_LOOP void sum_in_registers(const SumArgs& args,
                                        std::index_sequence<kRows...>) noexcept {
  const std::size_t num_words = static_cast<std::size_t>(args.hidden) / Word::kChannels;
  const std::byte* const rows[] = {bytes_of(args.rows[kRows])...};
  const float weights[] = {(kIsWeighted ? args.weights[kRows] : 1.0F)...};
  for (std::size_t first = 0; first < num_words; first += kPieceWords) {
    const std::size_t piece_words = std::min(kPieceWords, num_words - first);
    alignas(64) std::uint32_t sums[kPieceWords];
    for (std::size_t i = 0; i < piece_words; ++i) {
      const std::uint32_t words[] = {load_word(rows[kRows] + 4 * (first + i))...};
      float even = 0.0F;
      float odd = 0.0F;
      ((even = add<kIsWeighted>(even, weights[kRows], Word::even(words[kRows]))), ...);
      if constexpr (Word::kChannels == 2) {
        ((odd = add<kIsWeighted>(odd, weights[kRows], Word::odd(words[kRows]))), ...);
      }
      sums[i] = pack_word<Word>(even, odd);
    }
    store_words(static_cast<std::byte*>(args.out) + 4 * first, sums, piece_words, args.is_streamed);
  }
}

// Any number of rows, block by block.
template <typename Word>
FERRY_INLINE_LOOP void sum_in_blocks(const SumArgs& args) noexcept {
  const std::size_t num_words = static_cast<std::size_t>(args.hidden) / Word::kChannels;
  for (std::size_t word = 0; word < num_words; word += kBlockWords)
    sum_block<Word>(args, 4 * word, std::min(kBlockWords, num_words - word));
}

// Most tokens have few rows: one per destination rank.
template <typename Word, bool kIsWeighted>
FERRY_INLINE_LOOP void sum_words(const SumArgs& args) noexcept {
  const bool has_bias = args.bias != nullptr || args.second_bias != nullptr;
  switch (has_bias ? 0 : args.rows.size()) {
    case 1: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<1>());
    case 2: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<2>());
    case 3: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<3>());
    case 4: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<4>());
    case 5: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<5>());
    case 6: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<6>());
    case 7: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<7>());
    case 8: return sum_in_registers<Word, kIsWeighted>(args, std::make_index_sequence<8>());
    default: return sum_in_blocks<Word>(args);
  }
}

template <typename Word>
FERRY_INLINE_LOOP void sum_of_type(const SumArgs& args) noexcept {
  if (args.weights != nullptr) {
    sum_words<Word, true>(args);
  } else {
    sum_words<Word, false>(args);
  }
}

FERRY_VECTOR_LOOP void sum_bf16(const SumArgs& args) noexcept { sum_of_type<Bf16Word>(args); }
FERRY_VECTOR_LOOP void sum_fp16(const SumArgs& args) noexcept { sum_of_type<Fp16Word>(args); }
FERRY_VECTOR_LOOP void sum_fp32(const SumArgs& args) noexcept { sum_of_type<Fp32Word>(args); }

template <typename Word>
FERRY_INLINE_LOOP void scale_words(std::byte* out,
                                   const std::byte* row,
                                   float weight,
                                   std::int64_t hidden) noexcept {
  const std::size_t num_words = static_cast<std::size_t>(hidden) / Word::kChannels;
  for (std::size_t i = 0; i < num_words; ++i) {
    const std::uint32_t word = load_word(row + 4 * i);
    float odd = 0.0F;
    if constexpr (Word::kChannels == 2) odd = weight * Word::odd(word);
    store_word(out + 4 * i, pack_word<Word>(weight * Word::even(word), odd));
  }
}

FERRY_VECTOR_LOOP void scale_bf16(std::byte* out,
                                  const std::byte* row,
                                  float weight,
                                  std::int64_t hidden) noexcept {
  scale_words<Bf16Word>(out, row, weight, hidden);
}
FERRY_VECTOR_LOOP void scale_fp16(std::byte* out,
                                  const std::byte* row,
                                  float weight,
                                  std::int64_t hidden) noexcept {
  scale_words<Fp16Word>(out, row, weight, hidden);
}
FERRY_VECTOR_LOOP void scale_fp32(std::byte* out,
                                  const std::byte* row,
                                  float weight,
                                  std::int64_t hidden) noexcept {
  scale_words<Fp32Word>(out, row, weight, hidden);
}

}  // namespace

bool can_stream(const void* start, std::int64_t pitch, std::int64_t row_bytes) noexcept {
  constexpr auto kLine = static_cast<std::int64_t>(kLineBytes);
  return reinterpret_cast<std::uintptr_t>(start) % kLineBytes == 0 && pitch % kLine == 0 &&
         row_bytes % kLine == 0;
}

void sum_rows(const SumArgs& args) noexcept {
  if (args.dtype == DType::kBf16) sum_bf16(args);
  if (args.dtype == DType::kFp16) sum_fp16(args);
  if (args.dtype == DType::kFp32) sum_fp32(args);
}

void scale_row(
    DType dtype, void* out, const void* row, float weight, std::int64_t hidden) noexcept {
  auto* to = static_cast<std::byte*>(out);
  if (dtype == DType::kBf16) scale_bf16(to, bytes_of(row), weight, hidden);
  if (dtype == DType::kFp16) scale_fp16(to, bytes_of(row), weight, hidden);
  if (dtype == DType::kFp32) scale_fp32(to, bytes_of(row), weight, hidden);
}

}  // namespace ferry::cpu
