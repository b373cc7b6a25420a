#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ferry/api.hpp"

namespace ferry {

// Element types; the values are those of ferry_dtype in ferry.h.
enum class DType : int {
  kBf16 = 1,
  kFp16 = 2,
  kFp32 = 3,
  kFp8E4m3 = 4,  // e4m3fn: no infinity, 0x7F and 0xFF are NaN
  kFp8E5m2 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUint8 = 8,    // opaque one-byte elements
  kUint16 = 9,   // opaque two-byte elements
  kUint32 = 10,  // opaque four-byte elements
};

[[nodiscard]] FERRY_API std::size_t dtype_bytes(DType dtype) noexcept;
// The name as in messages, options and JSON: "bf16", "fp8_e4m3", ...
[[nodiscard]] FERRY_API const char* dtype_name(DType dtype) noexcept;

enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  [[nodiscard]] static constexpr Device cpu() { return {DeviceKind::kCpu, 0}; }
  [[nodiscard]] static constexpr Device cuda(int index) { return {DeviceKind::kCuda, index}; }
  friend constexpr bool operator==(Device, Device) = default;
};

// An ordered queue of device work (a cudaStream_t on CUDA). On the CPU engine calls run in the
// calling thread and the stream is ignored.
struct StreamRef {
  void* handle = nullptr;
};

// A tensor that somebody else owns. Plain data: it frees nothing and must not outlive the memory.
// Rows (all dimensions but the last) may be strided; the last dimension is dense. A default
// TensorView means "not given". An empty tensor (a zero in its shape) may have a null pointer.
struct FERRY_API TensorView {
  static constexpr int kMaxDims = 4;

  void* data = nullptr;
  DType dtype = DType::kBf16;
  int num_dims = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};  // in elements
  Device device;

  // A dense tensor. The pointer may come from const memory: tensors that an operation only reads
  // are never written.
  [[nodiscard]] static TensorView dense(const void* data,
                                        DType dtype,
                                        std::initializer_list<std::int64_t> shape,
                                        Device device = Device::cpu());

  [[nodiscard]] bool is_given() const noexcept { return num_dims > 0; }
  [[nodiscard]] std::int64_t num_elements() const noexcept;
  [[nodiscard]] bool is_dense() const noexcept;
};

}  // namespace ferry
