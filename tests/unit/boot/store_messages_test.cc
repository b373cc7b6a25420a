#include "boot/store_messages.hpp"

#include <gmock/gmock.h>

#include <numeric>

namespace ferry::boot {
namespace {

TEST(StoreMessages, NameRanksAsAPersonWould) {
  std::vector<std::uint32_t> many(20);
  std::iota(many.begin(), many.end(), 0);

  EXPECT_EQ(name_ranks({2}), "rank 2");
  EXPECT_EQ(name_ranks({2, 5}), "ranks 2 and 5");
  EXPECT_EQ(name_ranks({2, 5, 7}), "ranks 2, 5 and 7");
  EXPECT_EQ(name_ranks(many),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more");
}

TEST(StoreMessages, SayWhyARankWasRefused) {
  const auto message = [](Refusal reason, std::uint32_t expected) {
    return refused_message(1, 4, "h:1", {reason, expected});
  };
  const std::string start = "rank 1 was refused by rank 0 at 'h:1': ";

  EXPECT_EQ(message(Refusal::kVersion, 9),
            start + "it speaks version 9 of the store protocol, this rank 1");
  EXPECT_EQ(message(Refusal::kRankOutOfRange, 1), start + "rank 1 is not below its group's size 1");
  EXPECT_EQ(message(Refusal::kGroupLost, 3), start + "rank 3 was lost while the group formed");
}

}  // namespace
}  // namespace ferry::boot
