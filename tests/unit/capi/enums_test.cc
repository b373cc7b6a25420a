#include "capi/enums.hpp"

#include <climits>

#include "ferry/ferry.h"
#include "unit/capi/expect_error.hpp"

// That the values are equal is asserted at compile time, in src/capi/enums.cc.

namespace ferry::capi {
namespace {

// Every accepted number, and the first on each side that is not.
template <typename Enum>
void expect_range(std::int32_t last) {
  for (std::int32_t value = 0; value <= last; ++value)
    EXPECT_EQ(static_cast<std::int32_t>(to_enum<Enum>("s", "f", value)), value);
  for (const std::int32_t value : {-1, last + 1, INT_MIN, INT_MAX})
    expect_error(ErrorCode::kInvalidArgument,
                 "s.f is " + std::to_string(value) + ", expected 0.." + std::to_string(last),
                 [&] { static_cast<void>(to_enum<Enum>("s", "f", value)); });
}

TEST(ToEnum, AcceptsExactlyTheValuesOfEachEnumeration) {
  expect_range<DeviceKind>(FERRY_DEVICE_KIND_CUDA);
  expect_range<Layout>(FERRY_LAYOUT_PADDED);
  expect_range<Mode>(FERRY_MODE_LOW_LATENCY);
  expect_range<Sizing>(FERRY_SIZING_WORST_CASE);
  expect_range<Duplicates>(FERRY_DUPLICATES_ACCEPT);
  expect_range<Overflow>(FERRY_OVERFLOW_DROP);
  expect_range<Quantize>(FERRY_QUANTIZE_FP8_UE8M0);
  expect_range<ScaleLayout>(FERRY_SCALE_LAYOUT_COLUMN_MAJOR);
  expect_range<Gaps>(FERRY_GAPS_ZEROED);
  expect_range<RowOrder>(FERRY_ROW_ORDER_HIGHEST_K_ASCENDING);
  expect_range<Reduction>(FERRY_REDUCTION_EXACT);
  expect_range<CombineForm>(FERRY_COMBINE_FORM_PUSH);
  expect_range<LowLatencyForm>(FERRY_LOW_LATENCY_FORM_EXPAND);
}

TEST(ToDtype, AcceptsExactlyTheKnownTypes) {
  for (std::int32_t value = FERRY_DTYPE_BF16; value <= FERRY_DTYPE_UINT32; ++value)
    EXPECT_EQ(static_cast<std::int32_t>(to_dtype("x", "dtype", value)), value);
  for (const std::int32_t value : {0, -1, 11, INT_MIN, INT_MAX})
    expect_error(ErrorCode::kInvalidArgument,
                 "x.dtype is " + std::to_string(value) + ", expected 1..10",
                 [&] { static_cast<void>(to_dtype("x", "dtype", value)); });
}

TEST(ToBool, AcceptsOnlyZeroAndOne) {
  EXPECT_FALSE(to_bool("s", "f", 0));
  EXPECT_TRUE(to_bool("s", "f", 1));
  for (const std::int32_t value : {-1, 2, INT_MIN, INT_MAX})
    expect_error(ErrorCode::kInvalidArgument,
                 "s.f is " + std::to_string(value) + ", expected 0 or 1",
                 [&] { static_cast<void>(to_bool("s", "f", value)); });
}

}  // namespace
}  // namespace ferry::capi
