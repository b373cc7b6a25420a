#include "boot/fd_exchange.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "boot/fd_inbox.hpp"
#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using test::kLong;
using test::open_group;
using test::Place;
using testing::Each;

UniqueFd make_file(const std::string& text) {
  UniqueFd fd(::memfd_create("boot-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string read_file(int fd) {
  char bytes[64] = {};
  const ssize_t num_read = ::pread(fd, bytes, sizeof(bytes), 0);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(num_read, 0))};
}

class AnyStoreFds : public testing::TestWithParam<Place> {};

INSTANTIATE_TEST_SUITE_P(Places,
                         AnyStoreFds,
                         testing::Values(Place::kThreads, Place::kUnix, Place::kTcp),
                         [](const auto& place) -> std::string {
                           if (place.param == Place::kThreads) return "Threads";
                           return place.param == Place::kUnix ? "Unix" : "Tcp";
                         });

TEST_P(AnyStoreFds, GivesEveryRankADuplicateOfEveryDescriptor) {
  for (const int size : {1, 2, 8}) {
    auto stores = open_group(GetParam(), size);

    const auto errors = test::run_ranks(size, [&](int rank) {
      for (int round = 0; round < 3; ++round) {
        const UniqueFd own = make_file("rank " + std::to_string(rank));
        Store& store = *stores[static_cast<std::size_t>(rank)];
        const auto fds = store.exchange_fds("arena", own.get(), kLong);
        ASSERT_EQ(fds.size(), static_cast<std::size_t>(size));
        for (int peer = 0; peer < size; ++peer) {
          const int fd = fds[static_cast<std::size_t>(peer)].get();
          EXPECT_NE(fd, own.get());
          EXPECT_EQ(read_file(fd), "rank " + std::to_string(peer));
          EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
        }
      }
    });

    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(AnyStoreFds, NamesTheRankThatDoesNotCome) {
  auto stores = open_group(GetParam(), 2);
  const UniqueFd own = make_file("x");

  EXPECT_EQ(
      test::error_of([&] { (void)stores[0]->exchange_fds("arena", own.get(), test::kShort); }),
      "timeout: rank 0 waited 200 ms at step 'arena' for rank 1");
}

TEST_P(AnyStoreFds, TellsThatAPeerLeft) {
  auto stores = open_group(GetParam(), 2);
  const UniqueFd own = make_file("x");
  stores[1]->leave();

  EXPECT_EQ(test::error_of([&] { (void)stores[0]->exchange_fds("arena", own.get(), kLong); }),
            "peer lost: rank 0 lost rank 1 at step 'arena': it left the group");
}

TEST(FdExchange, RejectsADescriptorThatIsNotOpen) {
  auto stores = open_group(Place::kUnix, 2);

  EXPECT_EQ(test::error_of([&] { (void)stores[1]->exchange_fds("arena", -1, test::kShort); }),
            "no resource: rank 1 cannot duplicate descriptor -1: Bad file descriptor");
}

TEST(FdInbox, DecodesOnlyAPushThatShowsTheToken) {
  const Digest token = make_nonce();
  const std::string push = encode_push(7, token);

  EXPECT_EQ(decode_push(push, token), 7u);
  EXPECT_EQ(decode_push(push, make_nonce()), std::nullopt);
  EXPECT_EQ(decode_push(push.substr(1), token), std::nullopt);
  EXPECT_EQ(decode_push(push + "x", token), std::nullopt);
  EXPECT_EQ(decode_push("", token), std::nullopt);
}

void send_push(const std::string& name, const std::string& bytes, const std::vector<int>& fds) {
  const UniqueFd connection = connect_abstract(name, SOCK_SEQPACKET);
  ASSERT_TRUE(connection.is_open());
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  std::string copy = bytes;
  iovec piece{copy.data(), copy.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_GE(::sendmsg(connection.get(), &message, MSG_NOSIGNAL), 0);
}

TEST(FdInbox, TakesNothingFromStrangers) {
  const Digest token = make_nonce();
  FdInbox inbox(0, 4, token);
  const UniqueFd file = make_file("genuine");
  const UniqueFd other = make_file("forged");
  const UniqueFd silent = connect_abstract(inbox.name(), SOCK_SEQPACKET);

  send_push(inbox.name(), "rubbish", {other.get()});
  send_push(inbox.name(), encode_push(1, make_nonce()), {other.get()});
  send_push(inbox.name(), encode_push(4, token), {other.get()});
  send_push(inbox.name(), encode_push(0, token), {other.get()});
  send_push(inbox.name(), encode_push(2, token), {other.get(), other.get()});
  send_push(inbox.name(), encode_push(1, token), {file.get()});
  send_push(inbox.name(), encode_push(3, token), {file.get()});
  send_push(inbox.name(), encode_push(3, token), {other.get()});

  EXPECT_TRUE(inbox.wait_for({1, 3}, deadline_after(kLong)));
  const auto fds = inbox.take();
  EXPECT_FALSE(fds[0].is_open());
  EXPECT_EQ(read_file(fds[1].get()), "genuine");
  EXPECT_FALSE(fds[2].is_open());
  EXPECT_EQ(read_file(fds[3].get()), "genuine");
}

TEST(FdInbox, SaysWhoIsMissingAtItsDeadline) {
  FdInbox inbox(0, 3, make_nonce());

  EXPECT_FALSE(inbox.wait_for({1, 2}, deadline_after(test::kShort)));
  EXPECT_THAT(inbox.missing_of({1, 2}), testing::ElementsAre(1, 2));
  EXPECT_EQ(inbox.error(), 0);
}

TEST(FdInbox, ReportsAPushWhoseDescriptorGotLost) {
  const Digest token = make_nonce();
  FdInbox inbox(0, 2, token);

  send_push(inbox.name(), encode_push(1, token), {});

  EXPECT_FALSE(inbox.wait_for({1}, deadline_after(kLong)));
  EXPECT_EQ(inbox.error(), EMFILE);
}

}  // namespace
}  // namespace ferry::boot
