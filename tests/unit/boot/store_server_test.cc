// Strangers at rank 0's door: each is dropped and counted, and the group still forms.
#include "boot/store_server.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <thread>

#include "boot/join.hpp"
#include "boot/store_messages.hpp"
#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using test::connect_stranger;
using test::fresh_address;
using test::kLong;
using test::kSecret;
using test::make_meeting;
using test::Place;
using test::read_to_end;

std::string frame(FrameKind kind, const std::string& body) {
  return encode_header(kind, false, body.size()) + body;
}

// A server of three ranks; rank 0's own end belongs to the test.
struct Door {
  explicit Door(Place place, std::chrono::milliseconds handshake_limit = kLong)
      : address(fresh_address(place)) {
    auto [mine, served] = make_socket_pair();
    own = std::move(mine);
    StoreServer::Options options;
    options.size = 3;
    options.address = address;
    options.key = make_key(kSecret);
    options.has_secret = true;
    options.checks_uid = place == Place::kUnix;
    options.handshake_limit = handshake_limit;
    server = std::make_unique<StoreServer>(options, make_group_id(),
                                           listen_at(parse_address(address), ""), std::move(served),
                                           Session(Key{}, Transcript{}, Side::kServer));
  }

  // Both other ranks join; fails the test where they cannot.
  void expect_that_ranks_join() {
    for (const int rank : {1, 2}) {
      const Meeting meeting = make_meeting(address, rank, 3);
      try {
        joined.push_back(
            join(meeting, parse_address(address), make_key(kSecret), deadline_after(kLong)));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }

  [[nodiscard]] bool counts(std::uint32_t num_strangers) const {
    return test::becomes_true([&] { return server->num_strangers() >= num_strangers; }) &&
           server->num_strangers() == num_strangers;
  }

  std::string address;
  UniqueFd own;
  std::vector<Joined> joined;
  std::unique_ptr<StoreServer> server;
};

class AnyDoor : public testing::TestWithParam<Place> {};

INSTANTIATE_TEST_SUITE_P(Places,
                         AnyDoor,
                         testing::Values(Place::kUnix, Place::kTcp),
                         [](const auto& place) {
                           return place.param == Place::kUnix ? "Unix" : "Tcp";
                         });

TEST_P(AnyDoor, DropsRubbish) {
  Door door(GetParam());
  const std::string cases[] = {"GET / HTTP/1.1\r\n\r\n",
                               std::string(100, '\0'),
                               "FRY1" + std::string(8, '\xff'),
                               frame(FrameKind::kHello, "too short"),
                               frame(FrameKind::kGoodbye, ""),
                               frame(FrameKind::kContribute, std::string(100, 'x')),
                               encode_header(FrameKind::kHello, true, 4) + std::string(20, 'x')};

  for (const std::string& bytes : cases) {
    EXPECT_EQ(read_to_end(connect_stranger(door.address, bytes).get()), "");
  }

  EXPECT_TRUE(door.counts(std::size(cases)));
  door.expect_that_ranks_join();
}

TEST_P(AnyDoor, DropsAHugeLengthAtItsHeader) {
  Door door(GetParam());
  const UniqueFd stranger =
      connect_stranger(door.address, encode_header(FrameKind::kHello, false, 0xFFFFFFFF));

  EXPECT_EQ(read_to_end(stranger.get()), "");
  EXPECT_TRUE(door.counts(1));
  door.expect_that_ranks_join();
}

TEST_P(AnyDoor, DropsTheSilentAfterTheHandshakeLimit) {
  Door door(GetParam(), test::kShort);
  const UniqueFd silent = connect_stranger(door.address);
  const UniqueFd half = connect_stranger(door.address, "FRY1");

  EXPECT_EQ(read_to_end(silent.get()), "");
  EXPECT_EQ(read_to_end(half.get()), "");
  EXPECT_TRUE(door.counts(2));
}

TEST_P(AnyDoor, LetsRanksInPastSilentStrangers) {
  Door door(GetParam());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_stranger(door.address));

  door.expect_that_ranks_join();

  EXPECT_EQ(door.server->num_strangers(), 0u);
}

TEST_P(AnyDoor, LetsRanksInDuringAFlood) {
  Door door(GetParam());
  std::atomic<bool> is_over{false};
  std::thread flood([&] {
    std::vector<UniqueFd> open;
    while (!is_over.load()) {
      open.push_back(try_connect(parse_address(door.address), deadline_after(kLong)).fd);
      if (open.size() > 300) open.erase(open.begin(), open.begin() + 100);
    }
  });
  EXPECT_TRUE(test::becomes_true([&] { return door.server->num_strangers() > 100; }));

  door.expect_that_ranks_join();

  is_over = true;
  flood.join();
}

TEST_P(AnyDoor, RefusesAReplayedHandshake) {
  Door door(GetParam());
  // What a rank says, as an eavesdropper records it.
  Hello hello;
  hello.rank = 1;
  hello.size = 3;
  hello.has_secret = true;
  hello.nonce = make_nonce();
  std::string recorded;
  {
    Connection genuine(connect_stranger(door.address));
    genuine.queue(FrameKind::kHello, encode(hello));
    ASSERT_TRUE(genuine.flush());
    ParsedFrame challenge;
    ASSERT_TRUE(test::becomes_true([&] {
      (void)genuine.fill();
      challenge = genuine.next();
      return challenge.status == ParseStatus::kFrame;
    }));
    const Transcript transcript{hello, *decode_digest(challenge.body)};
    recorded = frame(FrameKind::kHello, encode(hello)) +
               frame(FrameKind::kProof, encode(prove_client(make_key(kSecret), transcript)));
  }
  ASSERT_TRUE(door.counts(1));

  const std::string answer = read_to_end(connect_stranger(door.address, recorded).get());

  const std::string refused = encode(Refused{Refusal::kWrongSecret, 0});
  EXPECT_EQ(answer.substr(answer.size() - refused.size()), refused);
  EXPECT_TRUE(door.counts(2));
  door.expect_that_ranks_join();
}

TEST_P(AnyDoor, DropsAMemberWhoseFramesAreForgedAsDead) {
  Door door(GetParam());
  door.expect_that_ranks_join();
  Connection& member = door.joined[0].connection;
  const std::string forged = encode_header(FrameKind::kGoodbye, true, 0) + std::string(16, 'x');

  ASSERT_EQ(::send(member.fd(), forged.data(), forged.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(forged.size()));

  Connection& other = door.joined[1].connection;
  ParsedFrame told;
  ASSERT_TRUE(test::becomes_true([&] {
    (void)other.fill();
    told = other.next();
    return told.status == ParseStatus::kFrame;
  }));
  EXPECT_EQ(told.kind, FrameKind::kPeer);
  EXPECT_EQ(decode_peer_change(told.body)->rank, 1u);
  EXPECT_EQ(decode_peer_change(told.body)->state, PeerState::kDead);
}

TEST_P(AnyDoor, ClosesOnceTheGroupHasFormed) {
  auto stores = test::open_group(GetParam(), 2);
  ASSERT_NE(stores[0], nullptr);
  const std::string address = fresh_address(GetParam());
  std::vector<std::unique_ptr<Store>> group(2);
  const auto errors = test::run_ranks(2, [&](int rank) {
    group[static_cast<std::size_t>(rank)] = open_store(make_meeting(address, rank, 2));
  });
  ASSERT_THAT(errors, testing::Each(""));

  const Connected late = try_connect(parse_address(address), deadline_after(kLong));

  EXPECT_FALSE(late.fd.is_open());
  EXPECT_TRUE(late.is_refused);
}

TEST(StoreServer, DropsAnotherUsersConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Door door(Place::kUnix);
  const std::string name = unix_socket_name(parse_address(door.address).name, 0);

  const pid_t child = ::fork();
  if (child == 0) {
    // Plain system calls only: the parent has threads.
    if (::setuid(65534) != 0) ::_exit(2);
    const UniqueFd fd = connect_abstract(name, SOCK_STREAM);
    if (!fd.is_open()) ::_exit(3);
    char byte = 0;
    (void)wait_ready(fd.get(), 1, Clock::now() + kLong);
    ::_exit(::recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0 ? 0 : 4);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(door.counts(1));
  door.expect_that_ranks_join();
}

TEST(Join, DoesNotTrustAnotherUsersSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string address = fresh_address(Place::kUnix);
  const std::string name = unix_socket_name(parse_address(address).name, 0);
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    const UniqueFd fd = listen_abstract(name, SOCK_STREAM);
    [[maybe_unused]] const auto written = ::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);

  const std::string error =
      test::error_of([&] { (void)open_store(make_meeting(address, 1, 2, kLong)); });

  EXPECT_EQ(error, "system error: rank 1 does not trust the socket '" + address +
                       "': it belongs to uid 65534, this rank to uid 0");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Join, RejectsAServerThatDoesNotKnowTheSecret) {
  const std::string address = fresh_address(Place::kTcp);
  const UniqueFd listener = listen_at(parse_address(address), "");
  std::thread impostor([&] {
    ASSERT_TRUE(wait_ready(listener.get(), 1, Clock::now() + kLong));
    Connection client(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)));
    client.queue(FrameKind::kChallenge, encode(make_nonce()));
    const std::string body = encode(Welcome{});
    client.queue(FrameKind::kWelcome, body);  // in the clear: it has no key to seal with
    EXPECT_TRUE(client.flush());
    (void)read_to_end(client.fd());
  });

  const std::string error =
      test::error_of([&] { (void)open_store(make_meeting(address, 1, 2, test::kShort)); });
  impostor.join();

  EXPECT_THAT(error, testing::StartsWith("timeout: rank 1 cannot join rank 0 at '" + address +
                                         "' within 200 ms: "));
}

}  // namespace
}  // namespace ferry::boot
