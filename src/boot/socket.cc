#include "boot/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"

namespace ferry::boot {

namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr std::chrono::seconds kConnectLimit{5};

// Where a socket binds or connects to, of any family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
};

SocketAddress copy_address(const sockaddr* address, std::size_t length) {
  SocketAddress copy;
  copy.length = static_cast<socklen_t>(length);
  std::memcpy(&copy.storage, address, length);
  return copy;
}

SocketAddress abstract_address(std::string_view name) {
  sockaddr_un address{};
  FERRY_CHECK_INTERNAL(name.size() < sizeof(address.sun_path), "socket name '{}' too long", name);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return copy_address(reinterpret_cast<const sockaddr*>(&address),
                      offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// The addresses of a host name or a numeric address, or none and the cause.
std::vector<SocketAddress> resolve(const std::string& host,
                                   std::uint16_t port,
                                   std::string& cause) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) {
    cause = status == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(status);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    addresses.push_back(copy_address(entry->ai_addr, entry->ai_addrlen));
  }
  return addresses;
}

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  }
}

// The addresses of a network interface of this host, IPv4 first; none where there is no such one.
std::vector<SocketAddress> interface_addresses(const std::string& name, std::uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (name != entry->ifa_name) continue;
      addresses.push_back(copy_address(
          entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
      set_port(addresses.back(), port);
    }
  }
  return addresses;
}

void set_option(int fd, int level, int option, int value) {
  // Tuning only: where the kernel refuses, the connection still works.
  (void)::setsockopt(fd, level, option, &value, sizeof(value));
}

// A host that vanishes closes no connection; the kernel's probes notice within about 20 s. They are
// answered by the peer's kernel, so a stopped process does not count as gone.
void tune_tcp(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
}

UniqueFd make_socket(int family, int type) {
  return UniqueFd(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

UniqueFd try_listen(const SocketAddress& address, int type, int& error) {
  UniqueFd fd = make_socket(address.family(), type);
  if (fd.is_open() && address.family() != AF_UNIX) {
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // past TIME_WAIT of an earlier group
    if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  }
  if (!fd.is_open() || ::bind(fd.get(), address.get(), address.length) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    error = errno;
    return {};
  }
  return fd;
}

bool is_loopback(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool is_numeric(const std::string& host) {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

UniqueFd listen_tcp(const Address& address, const std::string& interface) {
  std::string cause;
  std::vector<SocketAddress> addresses;
  if (!interface.empty()) addresses = interface_addresses(interface, address.port);
  const std::string& host = interface.empty() ? address.host : interface;
  if (addresses.empty()) addresses = resolve(host, address.port, cause);
  FERRY_CHECK(!addresses.empty() || interface.empty(), ErrorCode::kSystem,
              "rank 0 cannot listen on '{}': '{}' is neither a network interface nor an address of "
              "this host: {}; try: ip -brief address",
              address.text, interface, cause);
  int error = 0;
  for (const SocketAddress& candidate : addresses) {
    UniqueFd fd = try_listen(candidate, SOCK_STREAM, error);
    if (!fd.is_open()) continue;
    if (is_loopback(candidate) && !is_numeric(host) && host != "localhost" && host != "lo") {
      FERRY_WARN("boot.socket",
                 "'{}' is a loopback address on this host, where ranks on other hosts cannot "
                 "connect; try: FERRY_INTERFACE=<network interface>",
                 host);
    }
    return fd;
  }
  if (!addresses.empty()) cause = errno_text(error);
  const char* advice = "";
  if (error == EADDRINUSE) advice = "; try: FERRY_PORT=<a free port>";
  if (error == EADDRNOTAVAIL) advice = "; try: FERRY_INTERFACE=<network interface of rank 0>";
  FERRY_THROW(ErrorCode::kSystem, "rank 0 cannot listen on '{}': {}{}", address.text, cause,
              advice);
}

// 0 and a connection, or the error.
int connect_tcp(const SocketAddress& address, Deadline deadline, UniqueFd& out) {
  UniqueFd fd = make_socket(address.family(), SOCK_STREAM);
  if (!fd.is_open()) return errno;
  tune_tcp(fd.get());
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    const Deadline limit = std::min(deadline, Clock::now() + kConnectLimit);
    if (!wait_ready(fd.get(), POLLOUT, limit)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  out = std::move(fd);
  return 0;
}

}  // namespace

Deadline deadline_after(std::chrono::milliseconds duration) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  return Clock::now() + std::clamp(duration, std::chrono::milliseconds(0), kLongest);
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3600 * 1000));
}

UniqueFd listen_at(const Address& address, const std::string& interface) {
  if (!address.is_unix) return listen_tcp(address, interface);
  UniqueFd fd = listen_abstract(unix_socket_name(address.name, ::geteuid()), SOCK_STREAM);
  FERRY_CHECK(fd.is_open(), ErrorCode::kSystem, "rank 0 cannot listen on '{}': {}{}", address.text,
              errno_text(errno),
              errno == EADDRINUSE ? "; try: FERRY_ADDRESS=unix:<another name>" : "");
  return fd;
}

Connected try_connect(const Address& address, Deadline deadline) {
  Connected result;
  int error = 0;
  if (address.is_unix) {
    result.fd = connect_abstract(unix_socket_name(address.name, ::geteuid()), SOCK_STREAM);
    if (!result.fd.is_open()) error = errno;
  } else {
    for (const SocketAddress& candidate : resolve(address.host, address.port, result.cause)) {
      error = connect_tcp(candidate, deadline, result.fd);
      if (error == 0) break;
    }
  }
  if (error != 0) result.cause = errno_text(error);
  result.is_refused = error == ECONNREFUSED;
  return result;
}

UniqueFd listen_abstract(std::string_view name, int type) {
  int error = 0;
  UniqueFd fd = try_listen(abstract_address(name), type, error);
  errno = error;
  return fd;
}

UniqueFd connect_abstract(std::string_view name, int type) {
  const SocketAddress address = abstract_address(name);
  UniqueFd fd = make_socket(AF_UNIX, type);
  if (!fd.is_open()) return {};
  // Unix sockets connect at once or not at all.
  if (::connect(fd.get(), address.get(), address.length) == 0) return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return {};
}

std::pair<UniqueFd, UniqueFd> make_socket_pair() {
  int ends[2] = {-1, -1};
  const int status = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
  FERRY_CHECK(status == 0, ErrorCode::kNoResource, "cannot make a socket pair: {}",
              errno_text(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::optional<uid_t> peer_uid(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return credentials.uid;
}

bool wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, milliseconds_until(deadline));
    if (count > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

Wakeup::Wakeup() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  FERRY_CHECK(event_.is_open(), ErrorCode::kNoResource, "cannot make an event descriptor: {}",
              errno_text(errno));
}

void Wakeup::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof(one));
}

void Wakeup::drain() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto bytes = ::read(event_.get(), &count, sizeof(count));
}

std::thread start_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::move(body));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::exception& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    FERRY_THROW(ErrorCode::kNoResource, "cannot start a thread: {}", error.what());
  }
}

}  // namespace ferry::boot
