#include "memory/range_allocator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ferry::memory {
namespace {

TEST(RangeAllocator, GivesWholeUnitsFromTheFrontOfTheRange) {
  RangeAllocator ranges(100, 1000, 10);

  EXPECT_EQ(ranges.allocate(1), 100);
  EXPECT_EQ(ranges.allocate(11), 110);
  EXPECT_EQ(ranges.allocate(10), 130);
  EXPECT_EQ(ranges.largest_free_bytes(), 960);
}

TEST(RangeAllocator, RefusesWhatDoesNotFitInOnePiece) {
  RangeAllocator ranges(0, 100, 10);
  const auto first = ranges.allocate(40);
  const auto second = ranges.allocate(20);
  ASSERT_TRUE(first && second);
  ranges.deallocate(*first);

  EXPECT_FALSE(ranges.allocate(50));  // 80 are free, in two pieces of 40
  EXPECT_TRUE(ranges.allocate(40));
}

TEST(RangeAllocator, RefusesSenselessSizes) {
  RangeAllocator ranges(0, 100, 10);

  EXPECT_FALSE(ranges.allocate(0));
  EXPECT_FALSE(ranges.allocate(-1));
  EXPECT_FALSE(ranges.allocate(INT64_MAX));
  EXPECT_FALSE(RangeAllocator(0, 0, 10).allocate(1));
}

TEST(RangeAllocator, KnowsOnlyStartsThatItGave) {
  RangeAllocator ranges(0, 100, 10);
  const auto offset = ranges.allocate(30);
  ASSERT_TRUE(offset);

  EXPECT_FALSE(ranges.deallocate(*offset + 10));
  EXPECT_EQ(ranges.deallocate(*offset), 30);
  EXPECT_FALSE(ranges.deallocate(*offset));
}

TEST(RangeAllocator, MergesNeighboursUntilTheRangeIsWholeAgain) {
  RangeAllocator ranges(0, 4096, 16);
  std::mt19937 random(1);
  std::map<std::int64_t, std::int64_t> held;
  for (int round = 0; round < 2000; ++round) {
    if (held.size() < 20 && random() % 2 == 0) {
      const std::int64_t bytes = 1 + random() % 300;
      if (const auto offset = ranges.allocate(bytes)) {
        for (const auto& [other, other_bytes] : held)
          ASSERT_TRUE(*offset + bytes <= other || other + other_bytes <= *offset);
        held.emplace(*offset, bytes);
      }
    } else if (!held.empty()) {
      auto victim = held.begin();
      std::advance(victim, random() % held.size());
      ASSERT_TRUE(ranges.deallocate(victim->first));
      held.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : held) ranges.deallocate(offset);

  EXPECT_EQ(ranges.largest_free_bytes(), 4096);
}

}  // namespace
}  // namespace ferry::memory
