#include "boot/socket.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

TEST(DeadlineAfter, TakesTheLongestDurationThereIs) {
  EXPECT_GT(deadline_after(std::chrono::milliseconds::max()), Clock::now());
  const Deadline past = deadline_after(std::chrono::milliseconds::min());
  EXPECT_LE(past, Clock::now());
}

TEST(MillisecondsUntil, NeverIsNegativeAndRoundsUp) {
  EXPECT_EQ(milliseconds_until(Clock::now() - std::chrono::hours(1)), 0);
  EXPECT_GE(milliseconds_until(Clock::now() + std::chrono::seconds(1)), 999);
  EXPECT_GT(milliseconds_until(deadline_after(std::chrono::milliseconds::max())), 0);
}

TEST(Socket, DescriptorsCloseOnExecAndDoNotBlock) {
  const UniqueFd listener = listen_abstract("ferry-socket-test", SOCK_STREAM);
  const UniqueFd client = connect_abstract("ferry-socket-test", SOCK_STREAM);
  ASSERT_TRUE(client.is_open());
  const auto [a, b] = make_socket_pair();
  const Wakeup wakeup;

  for (const int fd : {listener.get(), client.get(), a.get(), b.get(), wakeup.fd()}) {
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  }
}

TEST(Socket, KnowsTheUidAtTheOtherEnd) {
  const auto [a, b] = make_socket_pair();

  EXPECT_EQ(peer_uid(a.get()), ::geteuid());
}

TEST(Socket, ListensOnTheGivenAddressOnly) {
  const std::string port = std::to_string(test::free_port());
  const UniqueFd listener = listen_at(parse_address("127.0.0.1:" + port), "");

  EXPECT_FALSE(
      try_connect(parse_address("127.0.0.2:" + port), deadline_after(test::kLong)).fd.is_open());
  EXPECT_TRUE(
      try_connect(parse_address("127.0.0.1:" + port), deadline_after(test::kLong)).fd.is_open());
}

TEST(Wakeup, StaysAwakeUntilDrained) {
  Wakeup wakeup;
  EXPECT_FALSE(wait_ready(wakeup.fd(), POLLIN, Clock::now()));
  wakeup.wake();
  wakeup.wake();
  EXPECT_TRUE(wait_ready(wakeup.fd(), POLLIN, Clock::now()));
  wakeup.drain();
  EXPECT_FALSE(wait_ready(wakeup.fd(), POLLIN, Clock::now()));
}

TEST(StartThread, TakesNoSignals) {
  sigset_t mask;
  ::sigemptyset(&mask);

  start_thread([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &mask); }).join();

  EXPECT_EQ(::sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(::sigismember(&mask, SIGTERM), 1);
}

}  // namespace
}  // namespace ferry::boot
