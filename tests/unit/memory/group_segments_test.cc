#include "memory/group_segments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ferry::memory {
namespace {

using namespace std::chrono_literals;

// Runs body(rank, segments) on one thread per rank.
template <typename Body>
void run_ranks(int num_ranks, int num_nodes, const Body& body) {
  auto stores = boot::make_thread_stores(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank)
    threads.emplace_back([&, rank] {
      const GroupSegments segments =
          GroupSegments::open(*stores[static_cast<std::size_t>(rank)], num_nodes, 10s);
      body(rank, segments);
      // Nobody's segment goes before everybody is done with it.
      (void)stores[static_cast<std::size_t>(rank)]->all_gather("end", {}, 10s);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupSegments, FindsOneNodeOnOneHost) {
  run_ranks(3, 1, [](int rank, const GroupSegments& segments) {
    EXPECT_EQ(segments.nodes().num_nodes, 1);
    EXPECT_EQ(segments.nodes().local_rank_of[static_cast<std::size_t>(rank)], rank);
  });
}

TEST(GroupSegments, PretendsNodes) {
  run_ranks(4, 2, [](int, const GroupSegments& segments) {
    EXPECT_THAT(segments.nodes().node_of, testing::ElementsAre(0, 0, 1, 1));
    EXPECT_THAT(segments.nodes().local_rank_of, testing::ElementsAre(0, 1, 0, 1));
  });
}

TEST(GroupSegments, WakesASleeperThatIsNotified) {
  // A waiter that has run out of pauses and yields sleeps for up to a minute; a lost wake-up would
  // run into the test's own deadline.
  std::atomic<int> turns{0};
  run_ranks(2, 1, [&](int rank, const GroupSegments& segments) {
    for (int round = 0; round < 2000; ++round) {
      GroupSegments::Waiter waiter(segments);
      for (;;) {
        const std::uint32_t ticket = waiter.ticket();
        if (turns.load() % 2 == rank) break;
        waiter.pause(ticket, 60s);
      }
      turns.fetch_add(1);
      segments.notify(1 - rank);
    }
  });

  EXPECT_EQ(turns.load(), 4000);
}

TEST(GroupSegments, ReturnsFromASleepAtItsDeadline) {
  run_ranks(1, 1, [](int, const GroupSegments& segments) {
    GroupSegments::Waiter waiter(segments);
    const auto start = std::chrono::steady_clock::now();
    for (int pause = 0; pause < 130; ++pause) waiter.pause(waiter.ticket(), 2ms);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  });
}

TEST(GroupSegments, TellsEveryRankTheFirstFault) {
  run_ranks(3, 1, [](int rank, const GroupSegments& segments) {
    if (rank == 1) {
      segments.raise_fault(ErrorCode::kPeerLost, "rank 2 was lost");
      segments.raise_fault(ErrorCode::kTimeout, "a later one");
    }
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!segments.has_fault() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    const auto fault = segments.fault();
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->code(), ErrorCode::kPeerLost);
    EXPECT_STREQ(fault->what(), "rank 2 was lost");
  });
}

TEST(GroupSegments, CutsALongFaultTextToTheRecord) {
  run_ranks(1, 1, [](int, const GroupSegments& segments) {
    segments.raise_fault(ErrorCode::kTimeout, std::string(5000, 'x'));
    EXPECT_EQ(std::string(segments.fault()->what()),
              std::string(layout::FaultRecord::kTextBytes - 1, 'x'));
  });
}

TEST(NumUsableCores, IsAtLeastOne) { EXPECT_GE(num_usable_cores(), 1); }

}  // namespace
}  // namespace ferry::memory
