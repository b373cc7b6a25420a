#include "ferry/tensor.hpp"

#include "base/error.hpp"
#include "ferry/version.hpp"

#define FERRY_TEXT_OF(x) #x
#define FERRY_TEXT(x) FERRY_TEXT_OF(x)

namespace ferry {

namespace {

// Extents come from callers: a product that does not fit becomes the largest number, which no real
// tensor reaches.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace

const char* version() noexcept {
  return FERRY_TEXT(FERRY_VERSION_MAJOR) "." FERRY_TEXT(FERRY_VERSION_MINOR) "." FERRY_TEXT(
      FERRY_VERSION_PATCH);
}

std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFp8E4m3:
    case DType::kFp8E5m2:
    case DType::kUint8: return 1;
    case DType::kBf16:
    case DType::kFp16:
    case DType::kUint16: return 2;
    case DType::kFp32:
    case DType::kInt32:
    case DType::kUint32: return 4;
    case DType::kInt64: return 8;
  }
  return 0;
}

const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kBf16: return "bf16";
    case DType::kFp16: return "fp16";
    case DType::kFp32: return "fp32";
    case DType::kFp8E4m3: return "fp8_e4m3";
    case DType::kFp8E5m2: return "fp8_e5m2";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kUint8: return "uint8";
    case DType::kUint16: return "uint16";
    case DType::kUint32: return "uint32";
  }
  return "unknown";
}

TensorView TensorView::dense(const void* data,
                             DType dtype,
                             std::initializer_list<std::int64_t> shape,
                             Device device) {
  FERRY_CHECK(shape.size() >= 1 && shape.size() <= kMaxDims,
              ErrorCode::kInvalidArgument,
              "a tensor has 1 to {} dimensions, got {}",
              int{kMaxDims},
              shape.size());
  TensorView view;
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.device = device;
  for (const std::int64_t extent : shape) view.shape[view.num_dims++] = extent;
  std::int64_t stride = 1;
  for (int dim = view.num_dims - 1; dim >= 0; --dim) {
    view.strides[dim] = stride;
    stride = saturating_product(stride, view.shape[dim]);
  }
  return view;
}

std::int64_t TensorView::num_elements() const noexcept {
  std::int64_t count = num_dims > 0 ? 1 : 0;
  for (int dim = 0; dim < num_dims; ++dim) count = saturating_product(count, shape[dim]);
  return count;
}

bool TensorView::is_dense() const noexcept {
  std::int64_t stride = 1;
  for (int dim = num_dims - 1; dim >= 0; --dim) {
    if (shape[dim] != 1 && strides[dim] != stride && num_elements() != 0) return false;
    stride = saturating_product(stride, shape[dim]);
  }
  return true;
}

}  // namespace ferry
