#include "contract/reference_numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ferry::contract {
namespace {

using support::HostTensor;

constexpr std::int64_t kGroup = 128;

// 16-bit floats by table: decode() is slow.
const std::vector<float>& half_table(DType dtype) {
  const auto make = [](DType type) {
    std::vector<float> table(65536);
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
      table[bits] = static_cast<float>(support::decode(type, bits));
    return table;
  };
  static const std::vector<float> bf16 = make(DType::kBf16);
  static const std::vector<float> fp16 = make(DType::kFp16);
  return dtype == DType::kBf16 ? bf16 : fp16;
}

// The e4m3 code nearest to a finite value, ties to the even code, beyond 448 the largest.
std::uint32_t nearest_e4m3(float value) {
  const double magnitude = std::min(std::fabs(static_cast<double>(value)), 448.0);
  const std::uint32_t sign = std::signbit(value) ? 0x80 : 0;
  const auto value_of = [](std::uint32_t code) { return support::decode(DType::kFp8E4m3, code); };
  std::uint32_t above = 0;  // the first code that is not below: positive codes ascend
  for (std::uint32_t step = 64; step > 0; step /= 2)
    if (above + step <= 0x7E && value_of(above + step - 1) < magnitude) above += step;
  while (value_of(above) < magnitude) ++above;
  if (above == 0) return sign;
  const double over = value_of(above) - magnitude;
  const double under = magnitude - value_of(above - 1);
  const bool is_above = over < under || (over == under && above % 2 == 0);
  return sign | (is_above ? above : above - 1);
}

std::uint32_t to_e4m3(float x, float scale) {
  if (std::isnan(x)) return 0x7F;
  if (std::isinf(x)) return x < 0 ? 0xFE : 0x7E;  // -448, 448
  return nearest_e4m3(x * scale);
}

float largest_finite(const HostTensor& rows, std::int64_t begin, std::int64_t end) {
  float amax = 1e-4F;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto value = static_cast<float>(rows.at(i));
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

}  // namespace

ReferenceSum::ReferenceSum(DType dtype, std::int64_t hidden)
    : dtype_(dtype), sum_(static_cast<std::size_t>(hidden), 0.0F) {}

float ReferenceSum::value(const std::byte* row, std::size_t index) const {
  if (dtype_ == DType::kFp32) {
    float result = 0;
    std::memcpy(&result, row + index * sizeof result, sizeof result);
    return result;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, row + index * sizeof bits, sizeof bits);
  return half_table(dtype_)[bits];
}

void ReferenceSum::start_from(const std::byte* bias) {
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] = value(bias, i);
}

void ReferenceSum::add(const std::byte* row) {
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] = sum_[i] + value(row, i);
}

void ReferenceSum::add_weighted(const std::byte* row, float weight) {
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    const float product = weight * value(row, i);
    sum_[i] = sum_[i] + product;
  }
}

void ReferenceSum::round_to(std::byte* out) const {
  const std::size_t width = dtype_bytes(dtype_);
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    const std::uint32_t bits = support::encode(dtype_, static_cast<double>(sum_[i]));
    std::memcpy(out + i * width, &bits, width);
  }
}

HostTensor reference_scale(const HostTensor& row, float weight) {
  HostTensor scaled(row.dtype(), row.shape());
  for (std::int64_t i = 0; i < row.num_elements(); ++i) {
    const float product = weight * static_cast<float>(row.at(i));
    scaled.set(i, static_cast<double>(product));
  }
  return scaled;
}

std::pair<HostTensor, HostTensor> reference_quantize(Quantize quantize, const HostTensor& rows) {
  const std::int64_t hidden = rows.row_elements();
  const std::int64_t num_groups = (hidden + kGroup - 1) / kGroup;
  const bool is_ue8m0 = quantize == Quantize::kFp8Ue8m0;
  HostTensor values(DType::kFp8E4m3, rows.shape());
  HostTensor scales(is_ue8m0 ? DType::kInt32 : DType::kFp32,
                    {rows.num_rows(), is_ue8m0 ? (num_groups + 3) / 4 : num_groups});
  for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
    for (std::int64_t group = 0; group < num_groups; ++group) {
      const std::int64_t begin = row * hidden + group * kGroup;
      const std::int64_t end = std::min(begin + kGroup, (row + 1) * hidden);
      const float amax = largest_finite(rows, begin, end);
      float scale = 448.0F / amax;
      if (is_ue8m0) {
        const float inverse = amax * (1.0F / 448.0F);
        const int exponent = static_cast<int>(std::ceil(std::log2(static_cast<double>(inverse))));
        scale = std::ldexp(1.0F, -exponent);
        scales.bytes()[static_cast<std::size_t>(row) * scales.row_bytes() +
                       static_cast<std::size_t>(group)] = static_cast<std::byte>(exponent + 127);
      } else {
        scales.set(row * num_groups + group, static_cast<double>(amax * (1.0F / 448.0F)));
      }
      for (std::int64_t i = begin; i < end; ++i)
        values.set_bits(i, to_e4m3(static_cast<float>(rows.at(i)), scale));
    }
  }
  return {std::move(values), std::move(scales)};
}

}  // namespace ferry::contract
