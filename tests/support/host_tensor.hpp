#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ferry/tensor.hpp"

namespace ferry::support {

// One element as its bits, by a conversion of its own (slow and obvious): nearest even for bf16,
// fp16 and fp32. Integer types take the value's low bits. fp8: exact values only, else it throws.
[[nodiscard]] std::uint32_t encode(DType dtype, double value);
[[nodiscard]] double decode(DType dtype, std::uint32_t bits);

// A dense tensor in host memory that owns its bytes.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, std::vector<std::int64_t> shape);  // zero-filled

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] bool is_given() const { return !shape_.empty(); }
  [[nodiscard]] std::int64_t num_elements() const;
  [[nodiscard]] std::int64_t num_rows() const;      // product of all dimensions but the last
  [[nodiscard]] std::int64_t row_elements() const;  // the last dimension
  [[nodiscard]] std::size_t row_bytes() const;

  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] const std::byte* row(std::int64_t index) const;
  [[nodiscard]] std::byte* row(std::int64_t index);

  [[nodiscard]] std::uint32_t bits(std::int64_t index) const;  // elements of 1, 2 and 4 bytes
  void set_bits(std::int64_t index, std::uint32_t bits);
  [[nodiscard]] double at(std::int64_t index) const;  // int64 too
  void set(std::int64_t index, double value);
  [[nodiscard]] std::int64_t int_at(std::int64_t index) const;

  void fill(std::byte value);

  // The same bytes as a view; valid while this tensor lives.
  [[nodiscard]] TensorView view() const;

  // [num_rows, n] with rows `stride` elements apart, this tensor being [num_rows, stride].
  [[nodiscard]] TensorView narrowed(std::int64_t n) const;

  // A dense copy of what a host view shows, strides of any kind included.
  [[nodiscard]] static HostTensor copy_of(const TensorView& view);

 private:
  DType dtype_ = DType::kUint8;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

// A small integer, the same for the same arguments on every machine; in -limit..limit.
[[nodiscard]] int small_integer(std::uint64_t seed,
                                std::uint64_t a,
                                std::uint64_t b,
                                int limit = 7);

// Rows of exact small integers (16 and 32-bit floats), or of arbitrary bytes (all other types).
[[nodiscard]] HostTensor patterned(DType dtype,
                                   std::vector<std::int64_t> shape,
                                   std::uint64_t seed);

// Finite floats between 2^-12 and 2^12 with arbitrary mantissas and signs: sums of them depend on
// the order and on every rounding.
[[nodiscard]] HostTensor rough(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed);

// Empty when equal; else "row 3 element 17 of [5, 64] bf16: got 0x4040 (3), expected ...".
[[nodiscard]] std::string first_difference(const HostTensor& got, const HostTensor& expected);

}  // namespace ferry::support
