#include "capi/options.hpp"

#include "unit/capi/expect_error.hpp"

namespace ferry::capi {
namespace {

using std::chrono::milliseconds;

// A tensor told from others by its address; 8 elements.
ferry_tensor tensor_at(const void* data) {
  const std::int64_t shape[1] = {8};
  return ferry_tensor_dense(data, FERRY_DTYPE_FP32, 1, shape);
}

const float kMemory[5] = {};

TEST(ToRouteOptions, TakesNullForTheDefaults) {
  const RouteOptions got = to_options(static_cast<const ferry_route_options*>(nullptr));

  EXPECT_FALSE(got.layout.has_value());
  EXPECT_EQ(got.sizing, Sizing::kExact);
  EXPECT_EQ(got.timeout, milliseconds(0));
}

TEST(ToRouteOptions, KeepsEveryField) {
  ferry_route_options given;
  ferry_route_options_init(&given);
  given.has_layout = 1;
  given.layout = FERRY_LAYOUT_BY_RANK;
  given.sizing = FERRY_SIZING_WORST_CASE;
  given.timeout_ms = 9;

  const RouteOptions got = to_options(&given);

  EXPECT_EQ(got.layout, Layout::kByRank);
  EXPECT_EQ(got.sizing, Sizing::kWorstCase);
  EXPECT_EQ(got.timeout, milliseconds(9));
}

TEST(ToRouteOptions, RefusesALayoutWhoseFlagWasForgotten) {
  ferry_route_options given;
  ferry_route_options_init(&given);
  given.layout = FERRY_LAYOUT_PADDED;

  expect_error(ErrorCode::kInvalidArgument,
               "ferry_route_options.layout is 2 while has_layout is 0, expected has_layout 1",
               [&] { static_cast<void>(to_options(&given)); });
}

TEST(ToRouteOptions, RefusesNumbersOutOfRangeByName) {
  ferry_route_options given;
  ferry_route_options_init(&given);
  given.sizing = -1;
  expect_error(ErrorCode::kInvalidArgument, "ferry_route_options.sizing is -1, expected 0..1",
               [&] { static_cast<void>(to_options(&given)); });

  ferry_route_options_init(&given);
  given.timeout_ms = INT64_MIN;
  expect_error(ErrorCode::kInvalidArgument,
               "ferry_route_options.timeout_ms is -9223372036854775808, expected 0 or more",
               [&] { static_cast<void>(to_options(&given)); });

  ferry_route_options_init(&given);
  given.reserved = -1;
  expect_error(ErrorCode::kInvalidArgument, "ferry_route_options.reserved is -1, expected 0",
               [&] { static_cast<void>(to_options(&given)); });
}

TEST(ToDispatchOptions, KeepsEveryField) {
  const ferry_tensor weights = tensor_at(&kMemory[0]);
  const ferry_tensor scales = tensor_at(&kMemory[1]);
  const ferry_tensor tokens = tensor_at(&kMemory[2]);
  ferry_delivery_outputs outputs;
  ferry_delivery_outputs_init(&outputs);
  outputs.tokens = &tokens;
  ferry_dispatch_options given;
  ferry_dispatch_options_init(&given);
  given.topk_weights = &weights;
  given.scales = &scales;
  given.quantize = FERRY_QUANTIZE_FP8_UE8M0;
  given.scale_layout = FERRY_SCALE_LAYOUT_COLUMN_MAJOR;
  given.gaps = FERRY_GAPS_ZEROED;
  given.scale_by_weights = 1;
  given.outputs = &outputs;
  given.timeout_ms = 9;

  const DispatchOptions got = to_options(&given);

  EXPECT_EQ(got.topk_weights.data, &kMemory[0]);
  EXPECT_EQ(got.scales.data, &kMemory[1]);
  EXPECT_EQ(got.quantize, Quantize::kFp8Ue8m0);
  EXPECT_EQ(got.scale_layout, ScaleLayout::kColumnMajor);
  EXPECT_EQ(got.gaps, Gaps::kZeroed);
  EXPECT_TRUE(got.scale_by_weights);
  EXPECT_EQ(got.outputs.tokens.data, &kMemory[2]);
  EXPECT_FALSE(got.outputs.scales.is_given());
  EXPECT_EQ(got.timeout, milliseconds(9));
}

TEST(ToDispatchOptions, NamesTheOutputThatIsWrong) {
  ferry_tensor scales = tensor_at(&kMemory[0]);
  scales.dtype = 99;
  ferry_delivery_outputs outputs;
  ferry_delivery_outputs_init(&outputs);
  outputs.scales = &scales;
  ferry_dispatch_options given;
  ferry_dispatch_options_init(&given);
  given.outputs = &outputs;

  expect_error(ErrorCode::kInvalidArgument, "outputs.scales.dtype is 99, expected 1..10",
               [&] { static_cast<void>(to_options(&given)); });
}

TEST(ToCombineOptions, KeepsEveryField) {
  const ferry_tensor tensors[5] = {tensor_at(&kMemory[0]), tensor_at(&kMemory[1]),
                                   tensor_at(&kMemory[2]), tensor_at(&kMemory[3]),
                                   tensor_at(&kMemory[4])};
  ferry_combine_options given;
  ferry_combine_options_init(&given);
  given.topk_weights = &tensors[0];
  given.bias = &tensors[1];
  given.second_bias = &tensors[2];
  given.row_weights = &tensors[3];
  given.combined_weights = &tensors[4];
  given.form = FERRY_COMBINE_FORM_PUSH;
  given.timeout_ms = 9;

  const CombineOptions got = to_options(&given);

  EXPECT_EQ(got.topk_weights.data, &kMemory[0]);
  EXPECT_EQ(got.bias.data, &kMemory[1]);
  EXPECT_EQ(got.second_bias.data, &kMemory[2]);
  EXPECT_EQ(got.row_weights.data, &kMemory[3]);
  EXPECT_EQ(got.combined_weights.data, &kMemory[4]);
  EXPECT_EQ(got.form, CombineForm::kPush);
  EXPECT_EQ(got.timeout, milliseconds(9));
}

TEST(ToOutputs, KeepsEveryField) {
  const ferry_tensor tensors[4] = {tensor_at(&kMemory[0]), tensor_at(&kMemory[1]),
                                   tensor_at(&kMemory[2]), tensor_at(&kMemory[3])};
  ferry_delivery_outputs given;
  ferry_delivery_outputs_init(&given);
  given.tokens = &tensors[0];
  given.scales = &tensors[1];
  given.topk_idx = &tensors[2];
  given.topk_weights = &tensors[3];

  const DeliveryOutputs got = to_outputs(&given);

  EXPECT_EQ(got.tokens.data, &kMemory[0]);
  EXPECT_EQ(got.scales.data, &kMemory[1]);
  EXPECT_EQ(got.topk_idx.data, &kMemory[2]);
  EXPECT_EQ(got.topk_weights.data, &kMemory[3]);
}

}  // namespace
}  // namespace ferry::capi
