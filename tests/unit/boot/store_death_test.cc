// Deaths: a connection that closes without a goodbye, and a process that is killed.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "boot/store.hpp"
#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using test::error_of;
using test::fresh_address;
using test::kLong;
using test::make_meeting;
using test::open_group;
using test::Place;

class DyingRank : public testing::TestWithParam<Place> {};

INSTANTIATE_TEST_SUITE_P(Places,
                         DyingRank,
                         testing::Values(Place::kUnix, Place::kTcp),
                         [](const auto& place) {
                           return place.param == Place::kUnix ? "Unix" : "Tcp";
                         });

void die(Store& store) { dynamic_cast<SocketStore&>(store).die(); }

TEST_P(DyingRank, IsSeenByEveryWatcherWithinTwoSeconds) {
  auto stores = open_group(GetParam(), 4);
  std::atomic<int> num_seen{0};
  for (const std::size_t rank : {0U, 1U, 3U}) {
    stores[rank]->watch([&](int peer, PeerState state) {
      if (peer == 2 && state == PeerState::kDead) ++num_seen;
    });
  }
  const auto start = Clock::now();

  die(*stores[2]);

  ASSERT_TRUE(test::becomes_true([&] { return num_seen.load() == 3; }));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  for (auto& store : stores) store->watch(nullptr);
}

TEST_P(DyingRank, EndsACollectiveThatWaitsForIt) {
  auto stores = open_group(GetParam(), 3);

  const auto errors = test::run_ranks(3, [&](int rank) {
    Store& store = *stores[static_cast<std::size_t>(rank)];
    if (rank == 1) {
      die(store);
    } else {
      (void)store.all_gather("arena", "", kLong);
    }
  });

  EXPECT_EQ(errors[0],
            "peer lost: rank 0 lost rank 1 at step 'arena': its connection closed without a "
            "goodbye");
  EXPECT_EQ(errors[2],
            "peer lost: rank 2 lost rank 1 at step 'arena': its connection closed without a "
            "goodbye");
}

TEST_P(DyingRank, IsSeenAlsoWhenItIsRank0) {
  auto stores = open_group(GetParam(), 3);

  die(*stores[0]);

  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_TRUE(
        test::becomes_true([&] { return stores[rank]->peer_state(0) == PeerState::kDead; }));
    EXPECT_EQ(stores[rank]->peer_state(3 - static_cast<int>(rank)), PeerState::kAlive);
  }
}

TEST_P(DyingRank, DoesNotTurnIntoOneThatLeft) {
  auto stores = open_group(GetParam(), 2);
  die(*stores[1]);
  stores[1]->leave();

  ASSERT_TRUE(test::becomes_true([&] { return stores[0]->peer_state(1) != PeerState::kAlive; }));

  EXPECT_EQ(stores[0]->peer_state(1), PeerState::kDead);
}

// A process of its own: it opens its store, says so through the pipe, and waits to be killed.
pid_t start_process(const Meeting& meeting, int ready_fd) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    const auto store = open_store(meeting);
    [[maybe_unused]] const auto written = ::write(ready_fd, "x", 1);
    for (;;) ::pause();
  } catch (...) {
  }
  ::_exit(1);
}

void kill_and_reap(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST_P(DyingRank, IsSeenWhenItsProcessIsKilled) {
  for (const int victim : {0, 1}) {
    const std::string address = fresh_address(GetParam());
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd ready(ends[0]);
    const pid_t child = start_process(make_meeting(address, victim, 2), ends[1]);
    ::close(ends[1]);
    const auto store = open_store(make_meeting(address, 1 - victim, 2));
    char byte = 0;
    ASSERT_EQ(::read(ready.get(), &byte, 1), 1);
    const auto start = Clock::now();

    kill_and_reap(child);

    EXPECT_TRUE(test::becomes_true([&] { return store->peer_state(victim) != PeerState::kAlive; }));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
    EXPECT_EQ(store->peer_state(victim), PeerState::kDead);
  }
}

TEST_P(DyingRank, BreaksAMeetingThatWaitsForAThird) {
  const std::string address = fresh_address(GetParam());
  std::string error;
  std::thread rank0(
      [&] { error = error_of([&] { (void)open_store(make_meeting(address, 0, 3)); }); });
  Meeting meeting = make_meeting(address, 1, 3);
  if (GetParam() == Place::kUnix) meeting.secret.clear();

  {
    const Joined joined =
        join(meeting, parse_address(address), make_key(meeting.secret), deadline_after(kLong));
  }  // it has joined; its connection closes
  rank0.join();

  EXPECT_EQ(error,
            "peer lost: rank 0 lost rank 1 at step 'meeting': its connection closed without a "
            "goodbye");
}

}  // namespace
}  // namespace ferry::boot
