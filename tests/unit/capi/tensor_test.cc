#include "capi/tensor.hpp"

#include <climits>

#include "unit/capi/expect_error.hpp"

namespace ferry::capi {
namespace {

constexpr std::int64_t kShape[] = {2, 3, 5, 7, 11};

TEST(ToView, KeepsEveryField) {
  float memory[64] = {};
  ferry_tensor tensor = ferry_tensor_dense(memory, FERRY_DTYPE_FP32, 3, kShape);
  tensor.strides[0] = 40;
  tensor.device_kind = FERRY_DEVICE_KIND_CUDA;
  tensor.device_index = 6;

  const TensorView view = to_view("x", &tensor);

  EXPECT_EQ(view.data, memory);
  EXPECT_EQ(view.dtype, DType::kFp32);
  ASSERT_EQ(view.num_dims, 3);
  EXPECT_EQ(view.shape[0], 2);
  EXPECT_EQ(view.shape[2], 5);
  EXPECT_EQ(view.shape[3], 0);
  EXPECT_EQ(view.strides[0], 40);
  EXPECT_EQ(view.strides[1], 5);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.device, Device::cuda(6));
}

TEST(ToView, TakesNullAndZeroDimensionsForNotGiven) {
  ferry_tensor tensor;
  ferry_tensor_init(&tensor);

  EXPECT_FALSE(to_view("x", nullptr).is_given());
  EXPECT_FALSE(to_view("x", &tensor).is_given());
}

TEST(ToView, RefusesNumbersThatNoViewHolds) {
  ferry_tensor tensor = ferry_tensor_dense(nullptr, FERRY_DTYPE_BF16, 2, kShape);

  for (const int num_dims : {-1, 5, INT_MIN, INT_MAX}) {
    tensor.num_dims = num_dims;
    expect_error(ErrorCode::kInvalidArgument,
                 "x.num_dims is " + std::to_string(num_dims) + ", expected 0..4",
                 [&] { static_cast<void>(to_view("x", &tensor)); });
  }
  tensor.num_dims = 2;
  tensor.dtype = 0;
  expect_error(ErrorCode::kInvalidArgument, "x.dtype is 0, expected 1..10",
               [&] { static_cast<void>(to_view("x", &tensor)); });
  tensor.dtype = FERRY_DTYPE_BF16;
  tensor.device_kind = 2;
  expect_error(ErrorCode::kInvalidArgument, "x.device_kind is 2, expected 0..1",
               [&] { static_cast<void>(to_view("x", &tensor)); });
}

TEST(WriteTensor, GivesBackWhatToViewRead) {
  float memory[64] = {};
  ferry_tensor given = ferry_tensor_dense(memory, FERRY_DTYPE_FP32, 4, kShape);
  given.device_kind = FERRY_DEVICE_KIND_CUDA;
  given.device_index = 3;
  ferry_tensor got;
  memset(&got, 0xff, sizeof got);
  got.struct_bytes = sizeof got;

  write_tensor(to_view("x", &given), &got);

  EXPECT_EQ(memcmp(&got, &given, sizeof got), 0);
}

TEST(WriteTensor, GivesZeroesForNotGiven) {
  ferry_tensor zero;
  ferry_tensor_init(&zero);
  ferry_tensor got;
  memset(&got, 0xff, sizeof got);
  got.struct_bytes = sizeof got;

  write_tensor({}, &got);

  EXPECT_EQ(memcmp(&got, &zero, sizeof got), 0);
}

TEST(TensorDense, AgreesWithTheViewOfCpp) {
  float memory[64] = {};
  const ferry_tensor tensor = ferry_tensor_dense(memory, FERRY_DTYPE_FP32, 3, kShape);
  const TensorView expected = TensorView::dense(memory, DType::kFp32, {2, 3, 5});

  const TensorView got = to_view("x", &tensor);

  EXPECT_EQ(got.num_dims, expected.num_dims);
  for (int dim = 0; dim < TensorView::kMaxDims; ++dim) {
    EXPECT_EQ(got.shape[dim], expected.shape[dim]);
    EXPECT_EQ(got.strides[dim], expected.strides[dim]);
  }
}

TEST(TensorDense, LeavesTooManyDimensionsToBeRefused) {
  const ferry_tensor tensor = ferry_tensor_dense(nullptr, FERRY_DTYPE_FP32, 5, kShape);
  int64_t num_elements = -1;

  EXPECT_EQ(ferry_tensor_num_elements(&tensor, &num_elements), FERRY_INVALID_ARGUMENT);

  EXPECT_STREQ(ferry_last_error(), "tensor.num_dims is 5, expected 0..4");
  EXPECT_EQ(num_elements, -1);
}

TEST(TensorNumElements, MultipliesTheShape) {
  const ferry_tensor tensor = ferry_tensor_dense(nullptr, FERRY_DTYPE_FP32, 4, kShape);
  int64_t num_elements = 0;

  EXPECT_EQ(ferry_tensor_num_elements(&tensor, &num_elements), FERRY_OK);

  EXPECT_EQ(num_elements, 210);
}

TEST(TensorIsDense, SeesStridedRows) {
  ferry_tensor tensor = ferry_tensor_dense(nullptr, FERRY_DTYPE_FP32, 2, kShape);
  int32_t is_dense = -1;
  EXPECT_EQ(ferry_tensor_is_dense(&tensor, &is_dense), FERRY_OK);
  EXPECT_EQ(is_dense, 1);

  tensor.strides[0] = 4;

  EXPECT_EQ(ferry_tensor_is_dense(&tensor, &is_dense), FERRY_OK);
  EXPECT_EQ(is_dense, 0);
}

TEST(Dtype, HasBytesAndANameAndNeitherForUnknownNumbers) {
  EXPECT_EQ(ferry_dtype_bytes(FERRY_DTYPE_INT64), 8u);
  EXPECT_STREQ(ferry_dtype_name(FERRY_DTYPE_FP8_E4M3), "fp8_e4m3");
  for (const ferry_dtype dtype : {0, -1, 11, INT_MIN, INT_MAX}) {
    EXPECT_EQ(ferry_dtype_bytes(dtype), 0u);
    EXPECT_STREQ(ferry_dtype_name(dtype), "unknown");
  }
}

}  // namespace
}  // namespace ferry::capi
