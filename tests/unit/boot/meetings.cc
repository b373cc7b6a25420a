#include "unit/boot/meetings.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/error.hpp"

namespace ferry::boot::test {

int free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(fd.get(), generic, length), 0);
  EXPECT_EQ(::getsockname(fd.get(), generic, &length), 0);
  return ntohs(address.sin_port);
}

std::string fresh_address(Place place) {
  static std::atomic<int> next{0};
  if (place == Place::kUnix) {
    return "unix:boot-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
  }
  return "127.0.0.1:" + std::to_string(free_port());
}

Meeting make_meeting(const std::string& address,
                     int rank,
                     int size,
                     std::chrono::milliseconds timeout) {
  Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.address = address;
  meeting.secret = kSecret;
  meeting.timeout = timeout;
  return meeting;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("not a ferry::Error: ") + error.what();
  }
  return "";
}

std::vector<std::string> run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(
        [&, rank] { errors[static_cast<std::size_t>(rank)] = error_of([&] { body(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::unique_ptr<Store>> open_group(Place place, int size) {
  if (place == Place::kThreads) return make_thread_stores(size);
  const std::string address = fresh_address(place);
  std::vector<std::unique_ptr<Store>> stores(static_cast<std::size_t>(size));
  const auto errors = run_ranks(size, [&](int rank) {
    Meeting meeting = make_meeting(address, rank, size);
    if (place == Place::kTcpInsecure) {
      meeting.secret.clear();
      meeting.is_insecure = true;
    }
    stores[static_cast<std::size_t>(rank)] = open_store(meeting);
  });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
  return stores;
}

UniqueFd connect_stranger(const std::string& address, const std::string& bytes) {
  const Deadline deadline = deadline_after(kLong);
  Connected connected;
  while (!connected.fd.is_open() && Clock::now() < deadline) {
    connected = try_connect(parse_address(address), deadline);
  }
  EXPECT_TRUE(connected.fd.is_open()) << connected.cause;
  (void)::send(connected.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return std::move(connected.fd);
}

std::string read_to_end(int fd) {
  std::string text;
  const Deadline deadline = deadline_after(kLong);
  char bytes[4096];
  for (;;) {
    if (!wait_ready(fd, POLLIN, deadline)) {
      ADD_FAILURE() << "the other end did not close";
      return text;
    }
    const ssize_t status = ::recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (status <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(status));
  }
}

bool becomes_true(const std::function<bool()>& condition) {
  const Deadline deadline = deadline_after(kLong);
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ferry::boot::test
