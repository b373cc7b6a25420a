#include "boot/fd_inbox.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"

namespace ferry::boot {

namespace {

constexpr std::string_view kMagic = "FRYD";
constexpr std::chrono::seconds kPushLimit{5};  // a peer sends at once after connecting
constexpr std::size_t kMaxPending = 256;

}  // namespace

std::string encode_push(std::uint32_t rank, const Digest& token) {
  std::string out(kMagic);
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>((rank >> (8 * i)) & 0xFF));
  return out + encode(token);
}

std::optional<std::uint32_t> decode_push(std::string_view bytes, const Digest& token) {
  if (bytes.size() != kPushBytes || bytes.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  const auto shown = decode_digest(bytes.substr(kMagic.size() + 4));
  if (!shown || !is_equal(*shown, token)) return std::nullopt;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    rank |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[kMagic.size() + i]))
            << (8 * i);
  }
  return rank;
}

FdInbox::FdInbox(int rank, int size, const Digest& token)
    : rank_(rank),
      token_(token),
      name_("ferry-fd-" + hash_hex(encode(make_nonce()))),
      listener_(listen_abstract(name_, SOCK_SEQPACKET)),
      received_(static_cast<std::size_t>(size)) {
  FERRY_CHECK(listener_.is_open(), ErrorCode::kSystem,
              "rank {} cannot listen for descriptors of its peers: {}", rank, errno_text(errno));
  thread_ = start_thread([this] { run(); });
}

FdInbox::~FdInbox() {
  stop_.wake();
  thread_.join();
}

bool FdInbox::wait_for(const std::vector<std::uint32_t>& ranks, Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_all = [&] {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](std::uint32_t rank) { return received_[rank].is_open(); });
  };
  (void)changed_.wait_until(lock, deadline, [&] { return error_ != 0 || has_all(); });
  return has_all();
}

std::vector<std::uint32_t> FdInbox::missing_of(const std::vector<std::uint32_t>& ranks) {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t rank : ranks) {
    if (!received_[rank].is_open()) missing.push_back(rank);
  }
  return missing;
}

int FdInbox::error() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return error_;
}

std::vector<UniqueFd> FdInbox::take() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return std::exchange(received_, std::vector<UniqueFd>(received_.size()));
}

void FdInbox::run() noexcept {
  try {
    std::vector<Pending> pending;
    for (;;) {
      std::vector<pollfd> entries{{stop_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      Deadline deadline = Clock::now() + std::chrono::hours(1);
      for (const Pending& one : pending) {
        entries.push_back({one.connection.get(), POLLIN, 0});
        deadline = std::min(deadline, one.deadline);
      }
      (void)::poll(entries.data(), entries.size(), milliseconds_until(deadline));
      if (entries[0].revents != 0) return;
      for (std::size_t i = 0; i < pending.size(); ++i) {
        if (entries[i + 2].revents != 0 && receive(pending[i].connection.get())) {
          pending[i].connection.reset();
        }
      }
      const Deadline now = Clock::now();
      std::erase_if(pending, [now](const Pending& one) {
        return !one.connection.is_open() || one.deadline <= now;
      });
      if (entries[1].revents != 0) accept_some(pending);
    }
  } catch (const std::exception&) {
    fail(ENOMEM);
  }
}

void FdInbox::accept_some(std::vector<Pending>& pending) {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        fail(errno);
        listener_.reset();
      }
      return;
    }
    if (peer_uid(fd.get()) != ::geteuid()) continue;
    // A peer has sent before we accept: most connections are done here.
    if (receive(fd.get())) continue;
    if (pending.size() == kMaxPending) pending.erase(pending.begin());
    pending.push_back({std::move(fd), Clock::now() + kPushLimit});
  }
}

bool FdInbox::receive(int connection) {
  char bytes[kPushBytes + 1];  // one more, to see that a message is too long
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec piece{bytes, sizeof(bytes)};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t status = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (status < 0) return errno != EAGAIN && errno != EINTR;
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t num_fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < num_fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  accept_push({bytes, static_cast<std::size_t>(status)}, std::move(descriptors));
  return true;
}

void FdInbox::accept_push(std::string_view bytes, std::vector<UniqueFd> descriptors) {
  const auto rank = decode_push(bytes, token_);
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!rank || *rank >= received_.size() || *rank == static_cast<std::uint32_t>(rank_)) return;
  // A genuine push without its descriptor: the kernel had no number left for it here.
  if (descriptors.empty()) {
    error_ = EMFILE;
  } else if (descriptors.size() == 1 && !received_[*rank].is_open()) {
    received_[*rank] = std::move(descriptors.front());
  }
  changed_.notify_all();
}

void FdInbox::fail(int error) {
  const std::lock_guard<std::mutex> guard(mutex_);
  error_ = error;
  changed_.notify_all();
}

}  // namespace ferry::boot
