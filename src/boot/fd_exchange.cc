#include "boot/fd_exchange.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "boot/fd_inbox.hpp"
#include "boot/store_messages.hpp"

namespace ferry::boot {

namespace {

constexpr std::chrono::milliseconds kRetryPause{1};

UniqueFd duplicate(int fd, int rank) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  FERRY_CHECK(copy.is_open(), ErrorCode::kNoResource, "rank {} cannot duplicate descriptor {}: {}",
              rank, fd, errno_text(errno));
  return copy;
}

// 0 or an errno value.
int send_with_descriptor(int connection, std::string bytes, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  return ::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

// The peer's backlog or the user's descriptors in flight are full for now: its inbox drains them.
bool is_passing(int error) {
  return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ETOOMANYREFS;
}

int push_once(const std::string& peer_name, const std::string& bytes, int fd) {
  const UniqueFd connection = connect_abstract(peer_name, SOCK_SEQPACKET);
  if (!connection.is_open()) return errno;
  if (peer_uid(connection.get()) != ::geteuid()) return EPERM;
  return send_with_descriptor(connection.get(), bytes, fd);
}

// Whether the peer has it, as far as this side can know: it lies in the peer's queue.
bool push(const std::string& peer_name, const std::string& bytes, int fd, Deadline deadline) {
  for (;;) {
    const int error = push_once(peer_name, bytes, fd);
    if (error == 0) return true;
    if (!is_passing(error) || Clock::now() >= deadline) {
      FERRY_DEBUG("boot.fd", "cannot pass a descriptor to '{}': {}", peer_name, errno_text(error));
      return false;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

}  // namespace

std::vector<UniqueFd> exchange_descriptors(Store& store,
                                           const Digest& token,
                                           std::string_view what,
                                           int fd,
                                           std::chrono::milliseconds timeout) {
  const Deadline deadline = deadline_after(timeout);
  const int rank = store.rank();
  const auto size = static_cast<std::size_t>(store.size());
  UniqueFd own = duplicate(fd, rank);
  FdInbox inbox(rank, store.size(), token);

  const std::vector<std::string> names = store.all_gather(what, inbox.name(), timeout);
  const std::string bytes = encode_push(static_cast<std::uint32_t>(rank), token);
  std::string reached(size, '0');
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == static_cast<std::size_t>(rank)) continue;
    if (push(names[peer], bytes, fd, deadline)) reached[peer] = '1';
  }

  // Who has reached me: theirs are on the way, the others' never come.
  const std::vector<std::string> all_reached = store.all_gather(what, reached, timeout);
  std::vector<std::uint32_t> sources;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const std::string& row = all_reached[peer];
    if (row.size() == size && row[static_cast<std::size_t>(rank)] == '1') {
      sources.push_back(static_cast<std::uint32_t>(peer));
    }
  }
  if (!inbox.wait_for(sources, deadline)) {
    const int error = inbox.error();
    FERRY_CHECK(error == 0, ErrorCode::kNoResource,
                "rank {} cannot take the descriptors of {} at step '{}': {}; try: ulimit -n 4096",
                rank, name_ranks(inbox.missing_of(sources)), what, errno_text(error));
    throw_error(ErrorCode::kTimeout, late_message(rank, what, timeout, inbox.missing_of(sources)));
  }
  std::vector<UniqueFd> descriptors = inbox.take();
  descriptors[static_cast<std::size_t>(rank)] = std::move(own);
  return descriptors;
}

}  // namespace ferry::boot
