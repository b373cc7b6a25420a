#include "memory/arena.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"
#include "memory/availability.hpp"

namespace ferry::memory {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

layout::ArenaLayout small_layout() {
  layout::ArenaShape shape;
  shape.num_ranks = 1;
  shape.num_experts = 4;
  shape.top_k = 2;
  shape.max_tokens = 8;
  shape.max_row_bytes = 64;
  shape.max_sum_row_bytes = 128;
  shape.delivery_rows = 16;
  shape.slots_per_token = 2;
  // Address space for more than the machine can back.
  shape.heap_bytes = read_availability().available_bytes + (std::int64_t{4} << 30);
  return layout::make_arena_layout(shape);
}

class ArenaOfOneRank : public testing::Test {
 protected:
  ArenaOfOneRank()
      : layout_(small_layout()),
        store_(std::move(boot::make_thread_stores(1).front())),
        arena_(Arena::open(*store_, layout_, 5s)) {}

  layout::ArenaLayout layout_;
  std::unique_ptr<boot::Store> store_;
  Arena arena_;
};

TEST_F(ArenaOfOneRank, ReservesPagesOnce) {
  const std::int64_t before = arena_.reserved_bytes();

  arena_.reserve(layout_.heap + 100, 5000);
  const std::int64_t after = arena_.reserved_bytes();
  arena_.reserve(layout_.heap, 8192);

  EXPECT_EQ(after - before, 8192);
  EXPECT_EQ(arena_.reserved_bytes(), after);
}

TEST_F(ArenaOfOneRank, KeepsContentsWhenALaterRunCompletesAHugeBlock) {
  const std::int64_t block = (layout_.heap + (4 << 20) - 1) >> 21 << 21;
  arena_.reserve(block, 1 << 20);
  arena_.base()[block + 5] = std::byte{42};

  arena_.reserve(block + (1 << 20), 1 << 20);

  EXPECT_EQ(arena_.base()[block + 5], std::byte{42});
  EXPECT_EQ(arena_.base()[block + (1 << 20)], std::byte{0});
}

TEST_F(ArenaOfOneRank, GivesPagesBackAndRemembersThePeak) {
  const std::int64_t before = arena_.reserved_bytes();

  void* memory = arena_.allocate(1 << 20);
  arena_.deallocate(memory);

  EXPECT_EQ(arena_.reserved_bytes(), before);
  EXPECT_EQ(arena_.peak_reserved_bytes(), before + (1 << 20));
}

TEST_F(ArenaOfOneRank, RefusesMoreThanTheMachineHasBeforeTakingAnyOfIt) {
  const std::int64_t before = arena_.reserved_bytes();
  const std::int64_t too_much = read_availability().available_bytes + (std::int64_t{1} << 30);

  try {
    (void)arena_.allocate(too_much);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoResource);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string((too_much + 4095) / 4096 * 4096)));
    EXPECT_THAT(error.what(), HasSubstr("available"));
    EXPECT_THAT(error.what(), HasSubstr("cgroup limit"));
  }
  EXPECT_EQ(arena_.peak_reserved_bytes(), before);
  EXPECT_NE(arena_.allocate(4096), nullptr);
}

TEST_F(ArenaOfOneRank, KnowsItsOwnPointers) {
  EXPECT_EQ(arena_.offset_of(arena_.base() + 4096, 100), 4096);
  EXPECT_FALSE(arena_.offset_of(arena_.base() - 1, 1));
  EXPECT_FALSE(arena_.offset_of(arena_.base() + arena_.bytes() - 1, 2));
  EXPECT_FALSE(arena_.offset_of(this, 1));
}

TEST_F(ArenaOfOneRank, HandsOutNothingOnceRetired) {
  void* memory = arena_.allocate(4096);
  arena_.retire();

  EXPECT_THROW((void)arena_.allocate(4096), Error);
  const std::int64_t held = arena_.reserved_bytes();
  arena_.deallocate(memory);
  EXPECT_EQ(arena_.reserved_bytes(), held);  // late writers may still own the pages
}

}  // namespace
}  // namespace ferry::memory
