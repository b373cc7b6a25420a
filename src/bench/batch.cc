#include "bench/batch.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "bench/random.hpp"

namespace ferry::bench {

namespace {

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Finite values only: this program makes no others.
std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

using E4m3Table = std::array<float, 256>;

E4m3Table make_e4m3_table() {
  E4m3Table table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    const auto exponent = static_cast<int>((code >> 3) & 0xF);
    const auto mantissa = static_cast<float>(code & 0x7);
    const float magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(mantissa + 8, exponent - 10);
    table[code] = (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}

// Row `row` of a delivery [n, ...] or [E_l, rows, ...], its leading dimensions taken as one.
const std::byte* row_of(const TensorView& view, std::int64_t row) {
  const std::int64_t stride = view.strides[view.num_dims - 2];
  return static_cast<const std::byte*>(view.data) +
         row * stride * static_cast<std::int64_t>(dtype_bytes(view.dtype));
}

float scale_of(Quantize quantize, const std::byte* scales, std::int64_t group) {
  if (quantize == Quantize::kFp8) return reinterpret_cast<const float*>(scales)[group];
  const auto exponent = std::to_integer<std::uint32_t>(scales[group]);  // bytes in group order
  return std::bit_cast<float>(exponent << 23);
}

class RowMaker {
 public:
  RowMaker(const Batch& batch, const DeliverySnapshot& delivery, const TensorView& y)
      : batch_(batch), tokens_(delivery.tokens), scales_(delivery.scales), y_(y) {}

  void make(std::int64_t row, float factor) const {
    auto* out = reinterpret_cast<std::uint16_t*>(const_cast<std::byte*>(row_of(y_, row)));
    const std::byte* in = row_of(tokens_, row);
    if (batch_.quantize == Quantize::kNone) {
      const auto* values = reinterpret_cast<const std::uint16_t*>(in);
      for (std::int64_t c = 0; c < batch_.hidden; ++c)
        out[c] = float_to_bf16(bf16_to_float(values[c]) * factor);
      return;
    }
    static const E4m3Table kTable = make_e4m3_table();
    const std::byte* scales = row_of(scales_, row);
    for (std::int64_t c = 0; c < batch_.hidden; ++c)
      out[c] = float_to_bf16(kTable[std::to_integer<std::size_t>(in[c])] *
                             scale_of(batch_.quantize, scales, c / 128) * factor);
  }

 private:
  const Batch& batch_;
  TensorView tokens_;
  TensorView scales_;
  TensorView y_;
};

}  // namespace

void fill_row(const Batch& batch, int rank, std::int64_t token, std::span<std::uint16_t> row) {
  static_assert(kLargestValue == 8);
  // The exact bf16 patterns of -8..8, so that the loop is one multiplication and a look-up.
  static constexpr std::array<std::uint16_t, 17> kPatterns = {
      0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80, 0x0000,
      0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100};
  auto state = static_cast<std::uint32_t>(
      Random(batch.seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(token))
          .next());
  for (std::uint16_t& value : row) {
    state += 0x9E3779B9U;
    value = kPatterns[(((state ^ (state >> 15)) >> 8 & 0xFFFF) * 17) >> 16];
  }
}

float weight_at(const Batch& batch, int rank, std::int64_t token, int k) {
  const auto top_k = static_cast<std::int64_t>(batch.routing.top_k);
  const auto index = static_cast<std::size_t>(token * top_k + k);
  if (batch.routing.topk[static_cast<std::size_t>(rank)][index] < 0)
    return std::numeric_limits<float>::quiet_NaN();
  Random random(batch.seed + 1, static_cast<std::uint64_t>(rank), index);
  return static_cast<float>(1 + random.next_below(1000)) / 1000.0F;
}

float expert_factor(const Batch& batch, int rank, int expert) {
  return static_cast<float>(batch.layout == Layout::kByRank ? 1 + rank % 4 : 1 + expert % 3);
}

void apply_experts(const Batch& batch,
                   int rank,
                   const DeliverySnapshot& delivery,
                   const TensorView& y) {
  const RowMaker maker(batch, delivery, y);
  if (batch.layout == Layout::kByRank) {
    const std::int64_t num_rows = *static_cast<const std::int64_t*>(delivery.num_rows.data);
    for (std::int64_t row = 0; row < num_rows; ++row)
      maker.make(row, expert_factor(batch, rank, 0));
    return;
  }
  const auto* counts = static_cast<const std::int64_t*>(delivery.expert_counts.data);
  const auto* offsets = static_cast<const std::int64_t*>(delivery.expert_offsets.data);
  const std::vector<int>& owner = batch.routing.expert_owner;
  std::size_t local = 0;
  for (std::size_t expert = 0; expert < owner.size(); ++expert) {
    if (owner[expert] != rank) continue;
    const float factor = expert_factor(batch, rank, static_cast<int>(expert));
    for (std::int64_t i = 0; i < counts[local]; ++i) maker.make(offsets[local] + i, factor);
    ++local;
  }
}

}  // namespace ferry::bench
