#include "boot/socket_store.hpp"

#include <poll.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/human.hpp"
#include "base/log.hpp"
#include "boot/fd_exchange.hpp"
#include "boot/store_messages.hpp"

namespace ferry::boot {

namespace {

// How long rank 0 may take to say whom we wait for.
constexpr std::chrono::seconds kAnswerLimit{2};

// Rank 0's own connection needs no handshake: it never leaves the process. Its key is fresh.
Transcript make_own_transcript(const Meeting& meeting) {
  Transcript transcript;
  transcript.hello.size = static_cast<std::uint32_t>(meeting.size);
  transcript.hello.nonce = make_nonce();
  transcript.server_nonce = make_nonce();
  return transcript;
}

constexpr std::size_t kMaxBodyBytes = kMaxGatheredBytes + kMaxRanks * sizeof(std::uint32_t) + 64;

}  // namespace

std::unique_ptr<SocketStore> SocketStore::open(const Meeting& meeting, const Address& address) {
  const Deadline deadline = deadline_after(meeting.timeout);
  const Key key = make_key(meeting.secret);
  std::unique_ptr<StoreServer> server;
  std::optional<Joined> joined;
  if (meeting.rank == 0) {
    UniqueFd listener = listen_at(address, meeting.interface);
    auto [own, served] = make_socket_pair();
    const Transcript transcript = make_own_transcript(meeting);
    const GroupId group_id = make_group_id();
    StoreServer::Options options;
    options.size = meeting.size;
    options.address = meeting.address;
    options.key = key;
    options.has_secret = !meeting.secret.empty();
    options.checks_uid = address.is_unix;
    server =
        std::make_unique<StoreServer>(options, group_id, std::move(listener), std::move(served),
                                      Session(key, transcript, Side::kServer));
    joined.emplace(Joined{Connection(std::move(own)), group_id});
    joined->connection.start_session(Session(key, transcript, Side::kClient), kMaxBodyBytes);
  } else {
    joined.emplace(join(meeting, address, key, deadline));
  }
  std::unique_ptr<SocketStore> store(new SocketStore(meeting, std::move(joined->connection),
                                                     make_descriptor_token(key, joined->group_id)));
  store->server_ = std::move(server);
  (void)store->gather(kMeetingStep, {}, meeting.timeout, deadline);
  return store;
}

SocketStore::SocketStore(const Meeting& meeting,
                         Connection connection,
                         const Digest& descriptor_token)
    : meeting_(meeting),
      descriptor_token_(descriptor_token),
      states_(static_cast<std::size_t>(meeting.size)),
      connection_(std::move(connection)) {
  thread_ = start_thread([this] { run(); });
}

SocketStore::~SocketStore() { leave(); }

std::vector<std::string> SocketStore::all_gather(std::string_view what,
                                                 std::string_view bytes,
                                                 std::chrono::milliseconds timeout) {
  return gather(what, bytes, timeout, deadline_after(timeout));
}

std::vector<std::string> SocketStore::gather(std::string_view what,
                                             std::string_view bytes,
                                             std::chrono::milliseconds timeout,
                                             Deadline deadline) {
  FERRY_CHECK(bytes.size() <= kMaxContributionBytes, ErrorCode::kInvalidArgument,
              "rank {} gives {} at step '{}', at most {} are allowed", rank(),
              human_bytes(static_cast<std::int64_t>(bytes.size())), what,
              human_bytes(static_cast<std::int64_t>(kMaxContributionBytes)));
  what = what.substr(0, kMaxStepBytes);
  Lock lock(mutex_);
  if (fault_) throw_error(fault_->code, fault_->message);
  FERRY_CHECK(ending_ == Ending::kNone, ErrorCode::kInvalidArgument,
              "rank {} has left the group and cannot take part in step '{}'", rank(), what);
  send(FrameKind::kContribute, encode(Contribution{round_, what, bytes}));
  return wait_for_round(lock, what, timeout, deadline);
}

std::vector<std::string> SocketStore::wait_for_round(Lock& lock,
                                                     std::string_view what,
                                                     std::chrono::milliseconds timeout,
                                                     Deadline deadline) {
  const auto settled = [this] { return is_settled(); };
  if (!changed_.wait_until(lock, deadline, settled)) {
    // Rank 0 knows who is missing; its answer is the round's result or its failure.
    const auto waited_ms = static_cast<std::uint64_t>(timeout.count());
    send(FrameKind::kGiveUp, encode(GiveUp{round_, waited_ms}));
    (void)changed_.wait_until(lock, Clock::now() + kAnswerLimit, settled);
  }
  // A round that completed counts, whatever happened since.
  if (gathered_) {
    ++round_;
    std::vector<std::string> parts = std::move(gathered_->parts);
    gathered_.reset();
    return parts;
  }
  if (fault_) throw_error(fault_->code, fault_->message);
  if (lost_peer_ >= 0) {
    const PeerState state = states_[static_cast<std::size_t>(lost_peer_)].load();
    fail(ErrorCode::kPeerLost, lost_message(rank(), what, lost_peer_, state));
  }
  FERRY_CHECK(ending_ == Ending::kNone, ErrorCode::kInvalidArgument,
              "rank {} left the group during step '{}'", rank(), what);
  fail(ErrorCode::kTimeout,
       fmt::format("rank {} waited {} ms at step '{}' and rank 0 does not answer", rank(),
                   timeout.count(), what));
}

void SocketStore::fail(ErrorCode code, std::string message) {
  fault_ = Failed{round_, code, std::move(message)};
  throw_error(code, fault_->message);
}

bool SocketStore::is_settled() const {
  return gathered_ || fault_ || lost_peer_ >= 0 || ending_ != Ending::kNone;
}

void SocketStore::send(FrameKind kind, std::string body) {
  outgoing_.push_back({kind, std::move(body)});
  wakeup_.wake();
}

std::vector<UniqueFd> SocketStore::exchange_fds(std::string_view what,
                                                int fd,
                                                std::chrono::milliseconds timeout) {
  return exchange_descriptors(*this, descriptor_token_, what, fd, timeout);
}

PeerState SocketStore::peer_state(int peer) const noexcept {
  if (peer < 0 || peer >= size()) return PeerState::kAlive;
  return states_[static_cast<std::size_t>(peer)].load();
}

void SocketStore::watch(std::function<void(int peer, PeerState state)> on_change) {
  const std::lock_guard<std::mutex> guard(watch_mutex_);
  on_change_ = std::move(on_change);
  if (!on_change_) return;
  for (int peer = 0; peer < size(); ++peer) {
    const PeerState state = peer_state(peer);
    if (state != PeerState::kAlive) on_change_(peer, state);
  }
}

void SocketStore::leave() noexcept { end(Ending::kGoodbye); }

void SocketStore::die() noexcept { end(Ending::kSilent); }

std::uint32_t SocketStore::num_strangers() const noexcept {
  return server_ ? server_->num_strangers() : 0;
}

void SocketStore::end(Ending ending) noexcept {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (ending_ == Ending::kNone) ending_ = ending;
    changed_.notify_all();
  }
  wakeup_.wake();
  // The watcher itself may leave, from on_change; then the destructor joins.
  if (thread_.get_id() == std::this_thread::get_id()) return;
  const std::lock_guard<std::mutex> guard(end_mutex_);
  if (thread_.joinable()) thread_.join();
  if (server_) server_->stop();
}

// The watcher: the only user of the connection.
void SocketStore::run() noexcept {
  bool is_open = true;
  bool is_ending = false;
  try {
    while (is_open && !is_ending) {
      pollfd entries[2] = {{wakeup_.fd(), POLLIN, 0}, {connection_.fd(), POLLIN, 0}};
      if (connection_.has_unsent()) entries[1].events |= POLLOUT;
      if (::poll(entries, 2, -1) < 0 && errno != EINTR) break;
      if (entries[0].revents != 0) wakeup_.drain();
      if ((entries[1].revents & ~POLLOUT) != 0) is_open = receive();
      is_ending = !send_outgoing();
      if (!connection_.flush() && !is_ending) is_open = is_open && receive();
    }
  } catch (const std::exception& error) {
    FERRY_LOG(LogLevel::kError, "boot.store", "rank {}'s watcher ends: {}", rank(), error.what());
  }
  connection_.close();
  // Without its connection a rank sees nobody; rank 0 is the one whose end is certain.
  if (!is_ending) change(0, PeerState::kDead);
}

// False: this rank ends. What was handed over before is sent first, as far as the socket takes it.
bool SocketStore::send_outgoing() {
  std::vector<Outgoing> frames;
  Ending ending = Ending::kNone;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    frames.swap(outgoing_);
    ending = ending_;
  }
  if (ending == Ending::kSilent) return false;
  for (Outgoing& frame : frames) connection_.queue(frame.kind, std::move(frame.body));
  if (ending == Ending::kNone) return true;
  connection_.queue(FrameKind::kGoodbye);
  if (connection_.flush()) connection_.finish_sending();
  return false;
}

bool SocketStore::receive() {
  const bool is_open = connection_.fill();
  for (;;) {
    const ParsedFrame frame = connection_.next();
    if (frame.status == ParseStatus::kNeedMore) return is_open;
    if (frame.status == ParseStatus::kBad || !handle(frame)) {
      FERRY_WARN("boot.store", "rank {} closes a connection that was tampered with", rank());
      return false;
    }
  }
}

bool SocketStore::handle(const ParsedFrame& frame) {
  if (frame.kind == FrameKind::kPeer) {
    const auto peer = decode_peer_change(frame.body);
    if (!peer || peer->rank >= static_cast<std::uint32_t>(size())) return false;
    change(static_cast<int>(peer->rank), peer->state);
    return true;
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  if (frame.kind == FrameKind::kGathered) {
    gathered_ = decode_gathered(frame.body);
    if (!gathered_ || gathered_->round != round_ ||
        gathered_->parts.size() != static_cast<std::size_t>(size())) {
      gathered_.reset();
      return false;
    }
  } else if (frame.kind == FrameKind::kFailed) {
    const auto failed = decode_failed(frame.body);
    if (!failed) return false;
    if (!fault_) fault_ = failed;
  } else {
    return false;
  }
  changed_.notify_all();
  return true;
}

void SocketStore::change(int peer, PeerState state) {
  // Only this thread changes states, so the check cannot be overtaken.
  if (peer == rank() || peer_state(peer) != PeerState::kAlive) return;
  {
    // One step for watch(): it sees the state and tells, or we do, never both.
    const std::lock_guard<std::mutex> guard(watch_mutex_);
    states_[static_cast<std::size_t>(peer)].store(state);
    if (on_change_) on_change_(peer, state);
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  if (lost_peer_ < 0) lost_peer_ = peer;
  changed_.notify_all();
}

}  // namespace ferry::boot
