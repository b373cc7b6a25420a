#include "boot/agree.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace ferry::boot {
namespace {

using namespace std::chrono_literals;

// What each of three ranks throws when the ranks in `failing` have failed; "" is nothing.
std::vector<std::string> outcomes(const std::vector<int>& failing) {
  auto stores = make_thread_stores(3);
  std::vector<std::string> out(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      std::optional<Error> failure;
      for (const int other : failing)
        if (other == rank)
          failure.emplace(ErrorCode::kNoResource, fmt::format("rank {}: no: memory", rank));
      const auto thrown = capture_error(
          [&] { throw_together(*stores[static_cast<std::size_t>(rank)], "a step", failure, 5s); });
      if (thrown && thrown->code() == ErrorCode::kNoResource)
        out[static_cast<std::size_t>(rank)] = thrown->what();
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

TEST(ThrowTogether, PassesWhereNobodyFailed) {
  EXPECT_EQ(outcomes({}), std::vector<std::string>(3, ""));
}

TEST(ThrowTogether, ThrowsTheLowestRanksErrorOnAll) {
  EXPECT_EQ(outcomes({2, 1}), std::vector<std::string>(3, "rank 1: no: memory"));
}

}  // namespace
}  // namespace ferry::boot
