#include "engine/operation.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ferry::engine {
namespace {

layout::OperationShape some_shape() {
  layout::OperationShape shape;
  shape.operation = static_cast<std::int32_t>(layout::Operation::kDispatch);
  shape.dtype = static_cast<std::int32_t>(DType::kBf16);
  shape.row_bytes = 128;
  return shape;
}

TEST(FirstDifference, IsEmptyForEqualShapes) {
  EXPECT_EQ(first_difference(some_shape(), some_shape()), "");
}

TEST(FirstDifference, NamesTheFieldAndBothValues) {
  layout::OperationShape other = some_shape();
  other.dtype = static_cast<std::int32_t>(DType::kFp16);
  EXPECT_EQ(first_difference(some_shape(), other), "dtype bf16 against fp16");

  other.row_bytes = 64;
  EXPECT_EQ(first_difference(some_shape(), other), "row bytes 128 against 64");
}

TEST(SetError, LeavesTheWordsAloneWithoutOne) {
  layout::OperationWords words;
  set_error(words, std::nullopt);

  EXPECT_EQ(words.error_code, 0);
}

TEST(SetError, CutsAMessageToItsPlace) {
  layout::OperationWords words;
  set_error(words, Error(ErrorCode::kNoResource, std::string(1000, 'x')));

  EXPECT_EQ(words.error_code, static_cast<std::int32_t>(ErrorCode::kNoResource));
  EXPECT_EQ(std::string(words.error_text), std::string(layout::OperationWords::kTextBytes - 1, 'x'));
}

}  // namespace
}  // namespace ferry::engine
