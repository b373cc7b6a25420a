#include "cpu/thread_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace ferry::cpu {
namespace {

TEST(ThreadPool, VisitsEveryItemOnceWhateverTheThreadsAndPieces) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (const std::int64_t num_items : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(num_items));
      pool.parallel_for(num_items, 3, [&](std::int64_t begin, std::int64_t end, int worker) {
        ASSERT_LE(end - begin, std::max<std::int64_t>(3, num_threads == 1 ? num_items : 3));
        ASSERT_LT(worker, num_threads);
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& count : visits) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, SeesWhatEachRoundWroteBeforeTheNext) {
  ThreadPool pool(4);
  std::vector<int> values(257, 0);
  for (int round = 0; round < 500; ++round)
    pool.parallel_for(257, 8, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += 1;
    });

  EXPECT_EQ(values, std::vector<int>(257, 500));
}

}  // namespace
}  // namespace ferry::cpu
