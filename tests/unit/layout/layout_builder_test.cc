#include "layout/layout_builder.hpp"

#include <gtest/gtest.h>

namespace ferry::layout {
namespace {

TEST(LayoutBuilder, AlignsEachRangeAndTheTotal) {
  LayoutBuilder ranges;

  EXPECT_EQ(ranges.take(10, 16), 0);
  EXPECT_EQ(ranges.take(1, 16), 16);
  EXPECT_EQ(ranges.take(0, 64), 64);
  EXPECT_EQ(ranges.take(5), LayoutBuilder::kPage);
  EXPECT_EQ(ranges.bytes(), 2 * LayoutBuilder::kPage);
}

static_assert(LayoutBuilder::align_up(0, 16) == 0);
static_assert(LayoutBuilder::align_up(17, 16) == 32);

}  // namespace
}  // namespace ferry::layout
