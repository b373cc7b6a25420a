#include "support/host_tensor.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ferry::support {
namespace {

struct Float {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

Float format_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16: return {8, 7, true};
    case DType::kFp16: return {5, 10, true};
    case DType::kFp32: return {8, 23, true};
    case DType::kFp8E4m3: return {4, 3, false};
    case DType::kFp8E5m2: return {5, 2, true};
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32: break;
  }
  throw std::logic_error("not a float type");
}

bool is_float(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kFp16 || dtype == DType::kFp32 ||
         dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2;
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t count) {
  std::int64_t result = 1;
  for (std::size_t i = 0; i < count; ++i) result *= shape[i];
  return result;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

double decode(DType dtype, std::uint32_t bits) {
  if (!is_float(dtype)) return dtype == DType::kInt32 ? static_cast<std::int32_t>(bits) : bits;
  const Float format = format_of(dtype);
  const std::uint32_t exponent_mask = (1u << format.exponent_bits) - 1;
  const std::uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const std::uint32_t exponent = (bits >> format.mantissa_bits) & exponent_mask;
  const double sign = ((bits >> (format.mantissa_bits + format.exponent_bits)) & 1) ? -1.0 : 1.0;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent == exponent_mask && format.has_infinity)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  if (!format.has_infinity && (bits & 0x7F) == 0x7F)
    return std::numeric_limits<double>::quiet_NaN();
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
}

std::uint32_t encode(DType dtype, double value) {
  if (!is_float(dtype)) return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  const Float format = format_of(dtype);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint32_t sign =
      std::signbit(value) ? 1u << (format.mantissa_bits + format.exponent_bits) : 0u;
  const std::uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint32_t canonical_nan = (1u << (format.mantissa_bits + format.exponent_bits)) - 1;
  if (std::isnan(value)) return canonical_nan;
  const double magnitude = std::fabs(value);
  int exponent = 1 - bias;
  if (magnitude != 0 && std::isfinite(magnitude)) exponent = std::ilogb(magnitude);
  exponent = std::max(exponent, 1 - bias);  // subnormals share the smallest exponent
  // In units of the last place; nearbyint rounds to nearest even.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const double rounded = std::ldexp(units, exponent - format.mantissa_bits);
  if (format.mantissa_bits < 7 && rounded != magnitude)
    throw std::logic_error(fmt::format("{} is not an exact {}", value, dtype_name(dtype)));
  const double one = std::ldexp(1.0, format.mantissa_bits);
  // The hidden bit of a normal number is added to its exponent field, a carry likewise.
  const double field =
      units >= one || exponent > 1 - bias ? (exponent + bias) * one + (units - one) : units;
  if (!std::isfinite(magnitude) || field >= infinity) return sign | infinity;
  return sign | static_cast<std::uint32_t>(field);
}

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)) {
  bytes_.resize(static_cast<std::size_t>(num_elements()) * dtype_bytes(dtype_));
}

std::int64_t HostTensor::num_elements() const { return product(shape_, shape_.size()); }
std::int64_t HostTensor::num_rows() const { return product(shape_, shape_.size() - 1); }
std::int64_t HostTensor::row_elements() const { return shape_.back(); }
std::size_t HostTensor::row_bytes() const {
  return static_cast<std::size_t>(row_elements()) * dtype_bytes(dtype_);
}

const std::byte* HostTensor::row(std::int64_t index) const {
  return bytes_.data() + static_cast<std::size_t>(index) * row_bytes();
}
std::byte* HostTensor::row(std::int64_t index) {
  return bytes_.data() + static_cast<std::size_t>(index) * row_bytes();
}

std::uint32_t HostTensor::bits(std::int64_t index) const {
  std::uint32_t value = 0;
  const std::size_t width = dtype_bytes(dtype_);
  std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(index) * width, width);
  return value;
}

void HostTensor::set_bits(std::int64_t index, std::uint32_t bits) {
  const std::size_t width = dtype_bytes(dtype_);
  std::memcpy(bytes_.data() + static_cast<std::size_t>(index) * width, &bits, width);
}

std::int64_t HostTensor::int_at(std::int64_t index) const {
  if (dtype_ != DType::kInt64) return static_cast<std::int32_t>(bits(index));
  std::int64_t value = 0;
  std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

double HostTensor::at(std::int64_t index) const {
  return dtype_ == DType::kInt64 ? static_cast<double>(int_at(index)) : decode(dtype_, bits(index));
}

void HostTensor::set(std::int64_t index, double value) {
  if (dtype_ != DType::kInt64) return set_bits(index, encode(dtype_, value));
  const auto integer = static_cast<std::int64_t>(value);
  std::memcpy(bytes_.data() + static_cast<std::size_t>(index) * sizeof integer, &integer,
              sizeof integer);
}

void HostTensor::fill(std::byte value) { std::fill(bytes_.begin(), bytes_.end(), value); }

TensorView HostTensor::view() const {
  TensorView view;
  view.data = const_cast<std::byte*>(bytes_.data());
  view.dtype = dtype_;
  view.num_dims = static_cast<int>(shape_.size());
  std::int64_t stride = 1;
  for (int i = view.num_dims - 1; i >= 0; --i) {
    view.shape[i] = shape_[static_cast<std::size_t>(i)];
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

TensorView HostTensor::narrowed(std::int64_t n) const {
  TensorView narrow = view();
  narrow.shape[narrow.num_dims - 1] = n;
  return narrow;
}

HostTensor HostTensor::copy_of(const TensorView& view) {
  HostTensor copy(view.dtype, std::vector<std::int64_t>(view.shape, view.shape + view.num_dims));
  const std::size_t width = dtype_bytes(view.dtype);
  const auto* source = static_cast<const std::byte*>(view.data);
  const std::int64_t total = copy.num_elements();
  for (std::int64_t index = 0; index < total; ++index) {
    std::int64_t rest = index;
    std::int64_t offset = 0;
    for (int i = view.num_dims - 1; i >= 0; --i) {
      offset += rest % view.shape[i] * view.strides[i];
      rest /= view.shape[i];
    }
    std::memcpy(copy.bytes_.data() + static_cast<std::size_t>(index) * width,
                source + offset * static_cast<std::int64_t>(width), width);
  }
  return copy;
}

int small_integer(std::uint64_t seed, std::uint64_t a, std::uint64_t b, int limit) {
  const std::uint64_t hash = mix(mix(mix(seed) ^ a) ^ b);
  return static_cast<int>(hash % static_cast<std::uint64_t>(2 * limit + 1)) - limit;
}

HostTensor patterned(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed) {
  HostTensor tensor(dtype, std::move(shape));
  const bool is_summed = dtype == DType::kBf16 || dtype == DType::kFp16 || dtype == DType::kFp32;
  const std::int64_t total = tensor.num_elements();
  if (is_summed) {
    std::uint32_t values[15];
    for (int i = 0; i < 15; ++i) values[i] = encode(dtype, i - 7);
    for (std::int64_t i = 0; i < total; ++i)
      tensor.set_bits(i, values[mix(seed ^ static_cast<std::uint64_t>(i) << 20) % 15]);
  } else {
    for (std::size_t i = 0; i < tensor.bytes().size(); ++i)
      tensor.bytes()[i] = static_cast<std::byte>(mix(seed ^ i << 20));
  }
  return tensor;
}

HostTensor rough(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed) {
  HostTensor tensor(dtype, std::move(shape));
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    const std::uint64_t hash = mix(seed ^ static_cast<std::uint64_t>(i) << 20);
    const double fraction = 1.0 + static_cast<double>(hash >> 40) / (1 << 24);
    const double magnitude = std::ldexp(fraction, static_cast<int>(hash % 25) - 12);
    tensor.set(i, (hash >> 32 & 1) != 0 ? -magnitude : magnitude);
  }
  return tensor;
}

std::string first_difference(const HostTensor& got, const HostTensor& expected) {
  const auto type = [](const HostTensor& tensor) {
    return fmt::format("[{}] {}", fmt::join(tensor.shape(), ", "), dtype_name(tensor.dtype()));
  };
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape())
    return fmt::format("got {}, expected {}", type(got), type(expected));
  if (got.bytes() == expected.bytes()) return "";
  std::int64_t first = -1;
  std::int64_t num_different = 0;
  const std::size_t width = dtype_bytes(got.dtype());
  for (std::int64_t i = 0; i < got.num_elements(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (std::memcmp(&got.bytes()[at], &expected.bytes()[at], width) == 0) continue;
    if (first < 0) first = i;
    ++num_different;
  }
  return fmt::format("row {} element {} of {}: got {:#x} ({}), expected {:#x} ({}); {} differ",
                     first / got.row_elements(), first % got.row_elements(), type(got),
                     got.bits(first), got.at(first), expected.bits(first), expected.at(first),
                     num_different);
}

}  // namespace ferry::support
