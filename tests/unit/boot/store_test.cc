#include "boot/store.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "ferry/error.hpp"
#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using test::error_of;
using test::fresh_address;
using test::kLong;
using test::kShort;
using test::make_meeting;
using test::open_group;
using test::Place;
using test::run_ranks;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

// For a meeting that fails after the ranks that come have come, on a loaded machine as well.
constexpr std::chrono::milliseconds kEnough{2000};

// What every store must do, wherever its ranks meet.
class AnyStore : public testing::TestWithParam<Place> {};

INSTANTIATE_TEST_SUITE_P(
    Places,
    AnyStore,
    testing::Values(Place::kThreads, Place::kUnix, Place::kTcp, Place::kTcpInsecure),
    [](const auto& place) -> std::string {
      switch (place.param) {
        case Place::kThreads: return "Threads";
        case Place::kUnix: return "Unix";
        case Place::kTcp: return "Tcp";
        case Place::kTcpInsecure: return "TcpInsecure";
      }
      return "?";
    });

TEST_P(AnyStore, GathersPartsOfAllSizesInRankOrder) {
  for (const int size : {1, 2, 3, 8}) {
    auto stores = open_group(GetParam(), size);
    std::vector<std::string> expected;
    for (int rank = 0; rank < size; ++rank) {
      expected.emplace_back(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
    }

    const auto errors = run_ranks(size, [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      Store& store = *stores[index];
      EXPECT_EQ(store.rank(), rank);
      EXPECT_EQ(store.size(), size);
      EXPECT_EQ(store.all_gather("parts", expected[index], kLong), expected);
    });

    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(AnyStore, GathersAMebibytePerRank) {
  auto stores = open_group(GetParam(), 3);

  const auto errors = run_ranks(3, [&](int rank) {
    const std::string part((1U << 20) + static_cast<std::size_t>(rank),
                           static_cast<char>('a' + rank));
    const auto parts = stores[static_cast<std::size_t>(rank)]->all_gather("big", part, kLong);
    for (std::size_t peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(parts[peer],
                std::string((1U << 20) + peer, static_cast<char>('a' + static_cast<int>(peer))));
    }
  });

  EXPECT_THAT(errors, Each(""));
}

TEST_P(AnyStore, KeepsManyRoundsApart) {
  auto stores = open_group(GetParam(), 4);

  const auto errors = run_ranks(4, [&](int rank) {
    for (int round = 0; round < 200; ++round) {
      const std::string part = std::to_string(round * 10 + rank);
      const auto parts = stores[static_cast<std::size_t>(rank)]->all_gather("count", part, kLong);
      for (int peer = 0; peer < 4; ++peer) {
        ASSERT_EQ(parts[static_cast<std::size_t>(peer)], std::to_string(round * 10 + peer));
      }
    }
  });

  EXPECT_THAT(errors, Each(""));
}

TEST_P(AnyStore, NamesTheRanksThatAreLate) {
  auto stores = open_group(GetParam(), 4);

  const auto errors = run_ranks(4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    (void)stores[static_cast<std::size_t>(rank)]->all_gather("arena", "x", kShort);
  });

  EXPECT_THAT(errors[0], AnyOf("timeout: rank 0 waited 200 ms at step 'arena' for ranks 1 and 3",
                               "timeout: rank 2 waited 200 ms at step 'arena' for ranks 1 and 3"));
  EXPECT_EQ(errors[2], errors[0]);
}

TEST_P(AnyStore, TellsALateRankTheSameAndStaysBroken) {
  auto stores = open_group(GetParam(), 2);
  const std::string first = error_of([&] { (void)stores[0]->all_gather("arena", "", kShort); });

  const std::string late = error_of([&] { (void)stores[1]->all_gather("arena", "", kLong); });
  const std::string later = error_of([&] { (void)stores[0]->all_gather("next", "", kLong); });

  EXPECT_EQ(first, "timeout: rank 0 waited 200 ms at step 'arena' for rank 1");
  EXPECT_EQ(late, first);
  EXPECT_EQ(later, first);
}

TEST_P(AnyStore, RejectsRanksAtDifferentSteps) {
  auto stores = open_group(GetParam(), 2);

  const auto errors = run_ranks(2, [&](int rank) {
    (void)stores[static_cast<std::size_t>(rank)]->all_gather(rank == 0 ? "dispatch" : "combine", "",
                                                             kLong);
  });

  EXPECT_THAT(errors[0],
              AnyOf("invalid argument: ranks are at different steps: rank 0 at 'dispatch', rank 1 "
                    "at 'combine'",
                    "invalid argument: ranks are at different steps: rank 1 at 'combine', rank 0 "
                    "at 'dispatch'"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST_P(AnyStore, TellsAWaitingRankThatAPeerLeft) {
  auto stores = open_group(GetParam(), 3);

  const auto errors = run_ranks(3, [&](int rank) {
    Store& store = *stores[static_cast<std::size_t>(rank)];
    if (rank == 2) {
      store.leave();
    } else {
      (void)store.all_gather("arena", "", kLong);
    }
  });

  EXPECT_EQ(errors[0], "peer lost: rank 0 lost rank 2 at step 'arena': it left the group");
  EXPECT_EQ(errors[1], "peer lost: rank 1 lost rank 2 at step 'arena': it left the group");
  EXPECT_EQ(stores[0]->peer_state(2), PeerState::kLeft);
  EXPECT_EQ(stores[0]->peer_state(1), PeerState::kAlive);
}

TEST_P(AnyStore, CountsARoundThatCompletedBeforeAPeerLeft) {
  auto stores = open_group(GetParam(), 3);

  const auto errors = run_ranks(3, [&](int rank) {
    Store& store = *stores[static_cast<std::size_t>(rank)];
    EXPECT_THAT(store.all_gather("last", std::to_string(rank), kLong), ElementsAre("0", "1", "2"));
    store.leave();
  });

  EXPECT_THAT(errors, Each(""));
}

TEST_P(AnyStore, TellsEveryWatcherOncePerPeer) {
  auto stores = open_group(GetParam(), 3);
  std::atomic<int> num_calls{0};
  std::atomic<int> seen_peer{-1};
  std::atomic<PeerState> seen_state{PeerState::kAlive};
  stores[0]->watch([&](int peer, PeerState state) {
    seen_peer = peer;
    seen_state = state;
    ++num_calls;
  });

  stores[1]->leave();
  stores[1]->leave();

  ASSERT_TRUE(test::becomes_true([&] { return num_calls.load() == 1; }));
  EXPECT_EQ(seen_peer.load(), 1);
  EXPECT_EQ(seen_state.load(), PeerState::kLeft);
  stores[2]->leave();
  ASSERT_TRUE(test::becomes_true([&] { return num_calls.load() == 2; }));
  stores[0]->watch(nullptr);
}

TEST_P(AnyStore, TellsALateWatcherWhatHappenedBefore) {
  auto stores = open_group(GetParam(), 3);
  stores[2]->leave();
  ASSERT_TRUE(test::becomes_true([&] { return stores[0]->peer_state(2) == PeerState::kLeft; }));
  std::vector<std::pair<int, PeerState>> seen;

  stores[0]->watch([&](int peer, PeerState state) { seen.emplace_back(peer, state); });
  stores[0]->watch(nullptr);

  EXPECT_THAT(seen, ElementsAre(Pair(2, PeerState::kLeft)));
}

TEST_P(AnyStore, CallsNoWatcherAfterItWasTakenBack) {
  auto stores = open_group(GetParam(), 2);
  {
    auto gone = std::make_unique<std::atomic<int>>(0);
    stores[0]->watch([&](int, PeerState) { ++*gone; });
    stores[0]->watch(nullptr);
  }

  stores[1]->leave();

  EXPECT_TRUE(test::becomes_true([&] { return stores[0]->peer_state(1) == PeerState::kLeft; }));
}

TEST_P(AnyStore, SaysThatRank0Left) {
  auto stores = open_group(GetParam(), 3);

  stores[0]->leave();

  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_TRUE(
        test::becomes_true([&] { return stores[rank]->peer_state(0) == PeerState::kLeft; }));
  }
}

TEST_P(AnyStore, RefusesItsOwnUseAfterLeaving) {
  auto stores = open_group(GetParam(), 2);
  stores[1]->leave();

  EXPECT_EQ(error_of([&] { (void)stores[1]->all_gather("arena", "", kShort); }),
            "invalid argument: rank 1 has left the group and cannot take part in step 'arena'");
  EXPECT_EQ(stores[1]->peer_state(0), PeerState::kAlive);
}

TEST_P(AnyStore, LeavesWhileAnotherThreadWaits) {
  auto stores = open_group(GetParam(), 2);
  std::string error;
  std::thread waiting(
      [&] { error = error_of([&] { (void)stores[0]->all_gather("arena", "", kLong); }); });

  stores[0]->leave();
  waiting.join();

  EXPECT_THAT(error, AnyOf("invalid argument: rank 0 left the group during step 'arena'",
                           "invalid argument: rank 0 has left the group and cannot take part in "
                           "step 'arena'"));
}

TEST_P(AnyStore, AnswersForAPeerThatDoesNotExist) {
  auto stores = open_group(GetParam(), 2);

  EXPECT_EQ(stores[0]->peer_state(-1), PeerState::kAlive);
  EXPECT_EQ(stores[0]->peer_state(2), PeerState::kAlive);
}

TEST(OpenStore, NeedsNoAddressForAGroupOfOne) {
  Meeting meeting;

  const auto store = open_store(meeting);

  EXPECT_THAT(store->all_gather("alone", "x", kShort), ElementsAre("x"));
}

TEST(OpenStore, RejectsRanksAndSizesOutOfRange) {
  EXPECT_EQ(error_of([] { (void)open_store(make_meeting("unix:x", 0, 0)); }),
            "invalid argument: group size 0 is not from 1 to 4096");
  EXPECT_EQ(error_of([] { (void)open_store(make_meeting("unix:x", 0, 4097)); }),
            "invalid argument: group size 4097 is not from 1 to 4096");
  EXPECT_EQ(error_of([] { (void)open_store(make_meeting("unix:x", 3, 3)); }),
            "invalid argument: rank 3 is not from 0 to 2, the group having 3 ranks");
  EXPECT_EQ(error_of([] { (void)make_thread_stores(0); }),
            "invalid argument: group size 0 is not from 1 to 4096");
}

TEST(OpenStore, NamesTheRanksThatDidNotJoin) {
  for (const Place place : {Place::kUnix, Place::kTcp}) {
    const std::string address = fresh_address(place);

    const auto errors = run_ranks(2, [&](int rank) {
      (void)open_store(make_meeting(address, rank, 4, rank == 0 ? kEnough : kLong));
    });

    EXPECT_EQ(errors[0], "timeout: rank 0 waited 2000 ms at '" + address +
                             "' for 2 of 4 ranks to join: ranks "
                             "2 and 3");
    // Told by rank 0; where its connection was still in the making, by what it then found.
    EXPECT_EQ(errors[1], errors[0]);
  }
}

TEST(OpenStore, SaysThatNobodyListens) {
  EXPECT_EQ(error_of([] { (void)open_store(make_meeting("unix:nobody-here", 1, 2, kShort)); }),
            "timeout: rank 1 cannot join rank 0 at 'unix:nobody-here' within 200 ms: Connection "
            "refused");
  const std::string address = fresh_address(Place::kTcp);
  EXPECT_EQ(
      error_of([&] { (void)open_store(make_meeting(address, 1, 2, kShort)); }),
      "timeout: rank 1 cannot join rank 0 at '" + address + "' within 200 ms: Connection refused");
}

TEST(OpenStore, SaysWhyAHostCannotBeReached) {
  EXPECT_THAT(
      error_of([] { (void)open_store(make_meeting("no-such-host.invalid:29501", 1, 2, kShort)); }),
      StartsWith("system error: rank 1 cannot join rank 0 at 'no-such-host.invalid:29501' within "
                 "200 ms: "));
  // TCP has no broadcast: the kernel refuses.
  EXPECT_THAT(
      error_of([] { (void)open_store(make_meeting("255.255.255.255:29501", 1, 2, kShort)); }),
      StartsWith("system error: rank 1 cannot join rank 0 at '255.255.255.255:29501' within 200 "
                 "ms: "));
}

TEST(OpenStore, SaysThatThePortIsTaken) {
  const std::string address = fresh_address(Place::kTcp);
  const UniqueFd holder = listen_at(parse_address(address), "");

  EXPECT_EQ(error_of([&] { (void)open_store(make_meeting(address, 0, 2, kShort)); }),
            "system error: rank 0 cannot listen on '" + address +
                "': Address already in use; try: FERRY_PORT=<a free port>");
}

TEST(OpenStore, SaysThatTheNameIsTaken) {
  const std::string address = fresh_address(Place::kUnix);
  const UniqueFd holder = listen_at(parse_address(address), "");

  EXPECT_EQ(error_of([&] { (void)open_store(make_meeting(address, 0, 2, kShort)); }),
            "system error: rank 0 cannot listen on '" + address +
                "': Address already in use; try: FERRY_ADDRESS=unix:<another name>");
}

TEST(OpenStore, RefusesTcpWithoutASecret) {
  Meeting meeting = make_meeting("127.0.0.1:1", 1, 2, kShort);
  meeting.secret.clear();

  EXPECT_EQ(error_of([&] { (void)open_store(meeting); }),
            "unavailable: rank 1 meets over TCP at '127.0.0.1:1' and has no secret; try: (umask "
            "077; head -c 32 /dev/urandom | base64 > ferry.secret), copy the file to every host, "
            "FERRY_SECRET_FILE=ferry.secret");
}

// Opens rank 0 as described and the others, each with its own change; errors by rank.
std::vector<std::string> meet(const std::string& address,
                              int size,
                              const std::function<void(Meeting&)>& change) {
  return run_ranks(size, [&](int rank) {
    Meeting meeting = make_meeting(address, rank, size, rank == 0 ? kEnough : kLong);
    change(meeting);
    (void)open_store(meeting);
  });
}

TEST(OpenStore, RefusesARankWithAnotherSize) {
  const std::string address = fresh_address(Place::kUnix);

  const auto errors = meet(address, 2, [](Meeting& meeting) {
    if (meeting.rank == 1) meeting.size = 5;
  });

  EXPECT_EQ(errors[1], "invalid argument: rank 1 was refused by rank 0 at '" + address +
                           "': its group has 2 ranks, this rank expects 5");
  EXPECT_EQ(errors[0], "timeout: rank 0 waited 2000 ms at '" + address +
                           "' for 1 of 2 ranks to join: rank 1; connections turned away: 1");
}

TEST(OpenStore, RefusesASecondRankOfTheSameNumber) {
  const std::string address = fresh_address(Place::kUnix);

  const auto errors = meet(address, 3, [](Meeting& meeting) {
    if (meeting.rank == 2) meeting.rank = 1;
  });

  const std::string refused = "invalid argument: rank 1 was refused by rank 0 at '" + address +
                              "': another process has joined as rank 1";
  const std::string late = "timeout: rank 0 waited 2000 ms at '" + address +
                           "' for 1 of 3 ranks to join: rank 2; connections turned away: 1";
  EXPECT_EQ(errors[0], late);
  EXPECT_THAT(std::vector({errors[1], errors[2]}), testing::UnorderedElementsAre(refused, late));
}

TEST(OpenStore, RefusesAWrongSecret) {
  const std::string address = fresh_address(Place::kTcp);

  const auto errors = meet(address, 2, [](Meeting& meeting) {
    if (meeting.rank == 1) meeting.secret = "another secret that nobody else knows";
  });

  EXPECT_EQ(errors[1], "invalid argument: rank 1 was refused by rank 0 at '" + address +
                           "': the secrets differ; try: sha256sum \"$FERRY_SECRET_FILE\"");
  EXPECT_THAT(errors[0], HasSubstr("connections turned away: 1"));
}

TEST(OpenStore, RefusesARankThatLacksTheSecretOrHasOneTooMany) {
  const std::string address = fresh_address(Place::kTcp);

  const auto missing = meet(address, 2, [](Meeting& meeting) {
    if (meeting.rank == 1) meeting.secret.clear();
    meeting.is_insecure = true;
  });
  const auto unexpected = meet(address, 2, [](Meeting& meeting) {
    if (meeting.rank == 0) meeting.secret.clear();
    meeting.is_insecure = true;
  });

  EXPECT_EQ(missing[1],
            "unavailable: rank 1 was refused by rank 0 at '" + address +
                "': its group has a secret and this rank has none; try: FERRY_SECRET_FILE=<its "
                "file>");
  EXPECT_EQ(unexpected[1], "invalid argument: rank 1 was refused by rank 0 at '" + address +
                               "': this rank has a secret and its group has none");
}

TEST(OpenStore, ServesOneGroupAfterAnotherAtTheSameAddress) {
  for (const Place place : {Place::kUnix, Place::kTcp}) {
    const std::string address = fresh_address(place);

    const auto errors = run_ranks(3, [&](int rank) {
      std::vector<std::unique_ptr<Store>> stores;
      for (int i = 0; i < 5; ++i) stores.push_back(open_store(make_meeting(address, rank, 3)));
      for (auto& store : stores) {
        EXPECT_EQ(store->all_gather("all", std::to_string(rank), kLong).size(), 3u);
      }
    });

    EXPECT_THAT(errors, Each(""));
  }
}

TEST(OpenStore, MeetsOverIpv6) {
  const std::string address = "[::1]:" + std::to_string(test::free_port());
  try {
    (void)listen_at(parse_address(address), "");
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }

  const auto errors =
      run_ranks(2, [&](int rank) { (void)open_store(make_meeting(address, rank, 2)); });

  EXPECT_THAT(errors, Each(""));
}

TEST(OpenStore, BindsTheInterfaceInPlaceOfTheHost) {
  const std::string port = std::to_string(test::free_port());
  std::vector<std::string> errors = run_ranks(2, [&](int rank) {
    Meeting meeting = make_meeting((rank == 0 ? "0.0.0.0:" : "127.0.0.1:") + port, rank, 2);
    meeting.interface = rank == 0 ? "lo" : "";
    (void)open_store(meeting);
  });

  EXPECT_THAT(errors, Each(""));
}

TEST(OpenStore, RejectsAnInterfaceThatIsNone) {
  Meeting meeting = make_meeting("127.0.0.1:29501", 0, 2, kShort);
  meeting.interface = "no-such-interface.invalid";

  EXPECT_THAT(error_of([&] { (void)open_store(meeting); }),
              StartsWith("system error: rank 0 cannot listen on '127.0.0.1:29501': "
                         "'no-such-interface.invalid' is neither a network interface nor an "
                         "address of this host: "));
}

TEST(OpenStore, ListensOnNoAddressOfAnotherHost) {
  EXPECT_EQ(error_of([] { (void)open_store(make_meeting("192.0.2.1:29501", 0, 2, kShort)); }),
            "system error: rank 0 cannot listen on '192.0.2.1:29501': Cannot assign requested "
            "address; try: FERRY_INTERFACE=<network interface of rank 0>");
}

TEST(OpenStore, RejectsAContributionThatIsTooLarge) {
  auto stores = open_group(Place::kUnix, 2);
  const std::string huge(kMaxContributionBytes + 1, 'x');

  EXPECT_EQ(error_of([&] { (void)stores[1]->all_gather("huge", huge, kShort); }),
            "invalid argument: rank 1 gives 64.00 MiB at step 'huge', at most 64.00 MiB are "
            "allowed");
}

}  // namespace
}  // namespace ferry::boot
