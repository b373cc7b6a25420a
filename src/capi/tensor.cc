#include "capi/tensor.hpp"

#include <algorithm>

#include "capi/enums.hpp"
#include "capi/guard.hpp"
#include "capi/sized_struct.hpp"

namespace ferry::capi {

static_assert(FERRY_MAX_DIMS == TensorView::kMaxDims);

TensorView to_view(const char* name, const ferry_tensor* tensor) {
  const ferry_tensor given = read_sized("ferry_tensor", tensor);
  FERRY_CHECK(given.num_dims >= 0 && given.num_dims <= FERRY_MAX_DIMS, ErrorCode::kInvalidArgument,
              "{}.num_dims is {}, expected 0..{}", name, given.num_dims, FERRY_MAX_DIMS);
  TensorView view;
  if (given.num_dims == 0) return view;
  view.data = given.data;
  view.dtype = to_dtype(name, "dtype", given.dtype);
  view.num_dims = given.num_dims;
  std::copy_n(given.shape, given.num_dims, view.shape);
  std::copy_n(given.strides, given.num_dims, view.strides);
  view.device.kind = to_enum<DeviceKind>(name, "device_kind", given.device_kind);
  view.device.index = given.device_index;
  return view;
}

void write_tensor(const TensorView& view, ferry_tensor* out) {
  ferry_tensor tensor{};
  if (view.is_given()) {
    tensor.data = view.data;
    tensor.dtype = static_cast<ferry_dtype>(view.dtype);
    tensor.num_dims = view.num_dims;
    std::copy_n(view.shape, view.num_dims, tensor.shape);
    std::copy_n(view.strides, view.num_dims, tensor.strides);
    tensor.device_kind = static_cast<ferry_device_kind>(view.device.kind);
    tensor.device_index = view.device.index;
  }
  write_sized("ferry_tensor", tensor, out);
}

}  // namespace ferry::capi

using namespace ferry::capi;

ferry_status ferry_tensor_num_elements(const ferry_tensor* tensor, int64_t* out_num_elements) {
  return guard(__func__, {FERRY_REQUIRED(tensor), FERRY_REQUIRED(out_num_elements)},
               [&] { *out_num_elements = to_view("tensor", tensor).num_elements(); });
}

ferry_status ferry_tensor_is_dense(const ferry_tensor* tensor, int32_t* out_is_dense) {
  return guard(__func__, {FERRY_REQUIRED(tensor), FERRY_REQUIRED(out_is_dense)},
               [&] { *out_is_dense = to_view("tensor", tensor).is_dense() ? 1 : 0; });
}

size_t ferry_dtype_bytes(ferry_dtype dtype) {
  return ferry::dtype_bytes(static_cast<ferry::DType>(dtype));
}

const char* ferry_dtype_name(ferry_dtype dtype) {
  return ferry::dtype_name(static_cast<ferry::DType>(dtype));
}
