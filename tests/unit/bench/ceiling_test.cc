#include "bench/ceiling.hpp"

#include <gtest/gtest.h>

namespace ferry::bench {
namespace {

TEST(ThreadCounts, DoubleUpToAll) {
  EXPECT_EQ(thread_counts(1), (std::vector<int>{1}));
  EXPECT_EQ(thread_counts(2), (std::vector<int>{1, 2}));
  EXPECT_EQ(thread_counts(12), (std::vector<int>{1, 2, 4, 8, 12}));
}

TEST(AllowedCpus, AreAtLeastOne) { EXPECT_GE(allowed_cpus().size(), 1u); }

TEST(MeasureCeiling, MeasuresSmallBuffersToo) {
  const Ceiling ceiling =
      measure_ceiling({.max_threads = 2, .row_bytes = 1000, .buffer_bytes = 1 << 20, .repeats = 2});

  EXPECT_GT(ceiling.gbs, 0);
  EXPECT_LT(ceiling.gbs, 1e5);
  EXPECT_GE(ceiling.threads, 1);
  EXPECT_EQ(ceiling.buffer_bytes, (1 << 20) / 1000 * 1000);
}

}  // namespace
}  // namespace ferry::bench
