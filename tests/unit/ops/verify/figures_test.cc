#include "ops/verify/figures.hpp"

#include <gtest/gtest.h>

namespace ferry::ops {
namespace {

TEST(Figures, AreReadFromTheTestsOfOneAndOfSeveralNodes) {
  const auto figures = parse_figures(
      "[tuning] SMs 24, NVL chunk 4: 100.00 GB/s (NVL), 9.00 us\n"
      "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 8, 310.50 GB/s (NVL), t: 250.00 us\n"
      "[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 12, 75.10 GB/s (RDMA), 249.00 GB/s "
      "(NVL)\n");

  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0].operation, "dispatch FP8");
  EXPECT_EQ(figures[0].link, "NVL");
  EXPECT_DOUBLE_EQ(figures[0].gbytes, 310.5);
  EXPECT_EQ(figures[1].operation, "combine BF16");
  EXPECT_EQ(figures[1].link, "RDMA");
  EXPECT_DOUBLE_EQ(figures[2].gbytes, 249);
}

TEST(Figures, HaveAPublishedOneForEachOperation) {
  EXPECT_DOUBLE_EQ(published_figure(2, {"dispatch FP8", "RDMA", 0})->least, 70);
  EXPECT_FALSE(published_figure(3, {"dispatch FP8", "RDMA", 0}).has_value());
}

}  // namespace
}  // namespace ferry::ops
