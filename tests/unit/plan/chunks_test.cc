#include "plan/chunks.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "unit/plan/expect_error.hpp"

namespace ferry::plan {
namespace {

void expect_chunks(const Chunks& got, std::int64_t num_chunks, std::int64_t items_per_chunk) {
  EXPECT_EQ(got.num_chunks, num_chunks);
  EXPECT_EQ(got.items_per_chunk, items_per_chunk);
}

TEST(Chunks, NothingToMoveIsNoChunk) {
  expect_chunks(plan_chunks(0, 14336, 1 << 20), 0, 0);
  expect_chunks(plan_chunks(0, 14336, 1), 0, 0);
}

TEST(Chunks, WithoutALimitEverythingIsOneChunk) {
  expect_chunks(plan_chunks(4096, 14336, 0), 1, 4096);
  expect_chunks(plan_chunks(4096, 14336, -1), 1, 4096);
  expect_chunks(plan_chunks(INT64_MAX, INT64_MAX, 0), 1, INT64_MAX);
}

TEST(Chunks, RowsWithoutBytesAreOneChunk) { expect_chunks(plan_chunks(7, 0, 1), 1, 7); }

TEST(Chunks, PiecesAreEqualNotGreedy) {
  expect_chunks(plan_chunks(10, 1, 4), 3, 4);
  expect_chunks(plan_chunks(9, 1, 8), 2, 5);  // not 8 and 1
  expect_chunks(plan_chunks(8, 1, 8), 1, 8);
}

TEST(Chunks, AnItemThatJustFitsIsAChunk) { expect_chunks(plan_chunks(5, 1024, 1024), 5, 1); }

TEST(Chunks, HugeBatchesDoNotOverflow) {
  expect_chunks(plan_chunks(INT64_MAX, 1, INT64_MAX), 1, INT64_MAX);
  expect_chunks(plan_chunks(INT64_MAX, 1, INT64_MAX - 1), 2, INT64_MAX / 2 + 1);
}

TEST(Chunks, CoverAllItemsWithinTheLimit) {
  for (std::int64_t items = 1; items < 60; ++items) {
    for (std::int64_t limit = 3; limit < 200; ++limit) {
      const Chunks chunks = plan_chunks(items, 3, limit);

      EXPECT_GE(chunks.num_chunks * chunks.items_per_chunk, items) << items << " under " << limit;
      EXPECT_LT((chunks.num_chunks - 1) * chunks.items_per_chunk, items)
          << items << " under " << limit;
      EXPECT_LE(chunks.items_per_chunk * 3, limit) << items << " under " << limit;
    }
  }
}

TEST(Chunks, RefusesALimitBelowOneRowWithTheInequality) {
  expect_error(ErrorCode::kInvalidArgument,
               "memory_limit 1.00 KiB (1024 bytes) is below one row of 14336 bytes",
               [] { (void)plan_chunks(1, 14336, 1024); });
}

}  // namespace
}  // namespace ferry::plan
