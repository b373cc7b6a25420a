#include "boot/store_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/log.hpp"
#include "boot/store_messages.hpp"

namespace ferry::boot {

namespace {

constexpr std::size_t kMaxStrangers = 64;  // beyond one pending connection per rank
constexpr int kAcceptsPerTurn = 64;
constexpr std::chrono::milliseconds kDescriptorPause{50};

}  // namespace

StoreServer::StoreServer(const Options& options,
                         const GroupId& group_id,
                         UniqueFd listener,
                         UniqueFd own,
                         const Session& own_session)
    : options_(options),
      group_id_(group_id),
      listener_(std::move(listener)),
      states_(static_cast<std::size_t>(options.size), PeerState::kAlive),
      has_joined_(static_cast<std::size_t>(options.size)),
      round_(options.size) {
  auto peer = std::make_unique<Peer>(std::move(own));
  peer->connection.start_session(own_session, kMaxContributionBytes + 2 * kMaxStepBytes);
  peer->phase = Peer::Phase::kJoined;
  peer->rank = 0;
  has_joined_[0] = true;
  peers_.push_back(std::move(peer));
  thread_ = start_thread([this] { run(); });
}

void StoreServer::stop() noexcept {
  is_stopping_.store(true);
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
}

void StoreServer::run() noexcept {
  try {
    while (!is_stopping_.load()) serve_once();
    // What rank 0 said last, its goodbye above all, is still to be read.
    for (auto& peer : peers_) {
      if (peer->rank == 0) serve(*peer);
    }
    lose(0, PeerState::kLeft);
    flush_all();
    for (auto& peer : peers_) {
      // Unread bytes at a close would make TCP discard what the peer has not read yet.
      if (peer->phase != Peer::Phase::kGone && peer->connection.fill()) {
        peer->connection.finish_sending();
      }
    }
  } catch (const std::exception& error) {
    FERRY_LOG(LogLevel::kError, "boot.store", "rank 0's service ends: {}", error.what());
  }
  peers_.clear();  // without a goodbye the others see rank 0 dead
  listener_.reset();
}

void StoreServer::serve_once() {
  std::vector<pollfd> entries{{wakeup_.fd(), POLLIN, 0}};
  Deadline deadline = Clock::now() + std::chrono::hours(1);
  for (const auto& peer : peers_) {
    const short events = peer->connection.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({peer->connection.fd(), events, 0});
    if (peer->phase != Peer::Phase::kJoined) deadline = std::min(deadline, peer->deadline);
  }
  if (listener_.is_open()) {
    if (Clock::now() >= accept_after_) {
      entries.push_back({listener_.get(), POLLIN, 0});
    } else {
      deadline = std::min(deadline, accept_after_);
    }
  }
  if (::poll(entries.data(), entries.size(), milliseconds_until(deadline)) < 0) {
    FERRY_CHECK(errno == EINTR, ErrorCode::kSystem, "poll: {}", errno_text(errno));
    return;
  }
  if (entries[0].revents != 0) wakeup_.drain();
  const std::size_t num_peers = peers_.size();
  const bool can_accept = entries.size() > num_peers + 1 && entries.back().revents != 0;
  for (std::size_t i = 0; i < num_peers; ++i) {
    if ((entries[i + 1].revents & ~POLLOUT) != 0) serve(*peers_[i]);
  }
  if (can_accept && listener_.is_open()) accept_some();
  drop_late_strangers();
  flush_all();
  std::erase_if(peers_, [](const auto& peer) { return peer->phase == Peer::Phase::kGone; });
}

void StoreServer::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_after_ = Clock::now() + kDescriptorPause;
      }
      return;
    }
    if (options_.checks_uid && peer_uid(fd.get()) != ::geteuid()) {
      ++num_strangers_;
      continue;
    }
    make_room();
    auto peer = std::make_unique<Peer>(std::move(fd));
    peer->deadline = Clock::now() + options_.handshake_limit;
    peers_.push_back(std::move(peer));
  }
}

// A flood pushes out its own oldest connections; a rank needs two round trips, and tries again.
void StoreServer::make_room() {
  const auto is_pending = [](const auto& peer) {
    return peer->phase == Peer::Phase::kHello || peer->phase == Peer::Phase::kProof;
  };
  const auto num_pending =
      static_cast<std::size_t>(std::count_if(peers_.begin(), peers_.end(), is_pending));
  if (num_pending < kMaxStrangers + static_cast<std::size_t>(options_.size)) return;
  drop(**std::find_if(peers_.begin(), peers_.end(), is_pending));
}

void StoreServer::serve(Peer& peer) {
  if (peer.phase == Peer::Phase::kGone) return;
  const bool is_open = peer.connection.fill();
  while (peer.phase != Peer::Phase::kGone) {
    const ParsedFrame frame = peer.connection.next();
    if (frame.status == ParseStatus::kNeedMore) break;
    if (frame.status == ParseStatus::kBad) return drop(peer);
    handle(peer, frame);
  }
  if (!is_open) drop(peer);
}

void StoreServer::handle(Peer& peer, const ParsedFrame& frame) {
  switch (peer.phase) {
    case Peer::Phase::kHello: return handle_hello(peer, frame);
    case Peer::Phase::kProof: return handle_proof(peer, frame);
    case Peer::Phase::kJoined: return handle_member(peer, frame);
    case Peer::Phase::kGone: return;
  }
}

void StoreServer::handle_hello(Peer& peer, const ParsedFrame& frame) {
  const auto hello = frame.kind == FrameKind::kHello ? decode_hello(frame.body) : std::nullopt;
  if (!hello) return drop(peer);
  const auto size = static_cast<std::uint32_t>(options_.size);
  if (hello->version != kProtocolVersion) {
    return refuse(peer, Refusal::kVersion, kProtocolVersion);
  }
  if (hello->size != size) return refuse(peer, Refusal::kSize, size);
  if (hello->rank >= size) return refuse(peer, Refusal::kRankOutOfRange, size);
  if (hello->has_secret != options_.has_secret) {
    return refuse(peer, options_.has_secret ? Refusal::kSecretMissing : Refusal::kSecretUnexpected);
  }
  peer.transcript = {*hello, make_nonce()};
  peer.phase = Peer::Phase::kProof;
  peer.connection.queue(FrameKind::kChallenge, encode(peer.transcript.server_nonce));
}

void StoreServer::handle_proof(Peer& peer, const ParsedFrame& frame) {
  const auto proof = frame.kind == FrameKind::kProof ? decode_digest(frame.body) : std::nullopt;
  if (!proof) return drop(peer);
  if (!is_equal(*proof, prove_client(options_.key, peer.transcript))) {
    return refuse(peer, Refusal::kWrongSecret);
  }
  const std::uint32_t rank = peer.transcript.hello.rank;
  if (lost_rank_ >= 0) {
    return refuse(peer, Refusal::kGroupLost, static_cast<std::uint32_t>(lost_rank_));
  }
  if (has_joined_[rank]) return refuse(peer, Refusal::kRankTaken);
  has_joined_[rank] = true;
  peer.rank = static_cast<int>(rank);
  peer.phase = Peer::Phase::kJoined;
  peer.connection.start_session(Session(options_.key, peer.transcript, Side::kServer),
                                kMaxContributionBytes + 2 * kMaxStepBytes);
  peer.connection.queue(FrameKind::kWelcome,
                        encode(Welcome{group_id_, prove_server(options_.key, peer.transcript)}));
}

void StoreServer::handle_member(Peer& peer, const ParsedFrame& frame) {
  if (frame.kind == FrameKind::kContribute) {
    const auto contribution = decode_contribution(frame.body);
    return contribution ? contribute(peer, *contribution) : drop(peer);
  }
  if (frame.kind == FrameKind::kGiveUp) {
    const auto decoded = decode_give_up(frame.body);
    return decoded ? give_up(peer, *decoded) : drop(peer);
  }
  if (frame.kind == FrameKind::kGoodbye) {
    peer.phase = Peer::Phase::kGone;
    return lose(peer.rank, PeerState::kLeft);
  }
  drop(peer);
}

void StoreServer::contribute(Peer& peer, const Contribution& contribution) {
  if (!failed_.empty()) return peer.connection.queue(FrameKind::kFailed, failed_);
  if (lost_rank_ >= 0) return;  // the peer has been told, or is about to be
  if (const auto failure = round_.add(peer.rank, contribution)) return fail(*failure);
  if (!round_.is_complete()) return;
  const Gathered gathered = round_.take();
  // Before anybody can know that the group has formed, so that a next group can meet here.
  if (gathered.round == 0) close_listener();
  broadcast(FrameKind::kGathered, encode(gathered));
}

// One rank's deadline ends the round for all, with one message: whom it waited for.
void StoreServer::give_up(const Peer& peer, const GiveUp& give_up) {
  if (give_up.round != round_.number() || !failed_.empty()) return;  // answered already
  const std::chrono::milliseconds waited(give_up.waited_ms);
  const bool is_meeting = round_.number() == 0;
  fail({round_.number(), ErrorCode::kTimeout,
        is_meeting ? not_joined_message(peer.rank, options_.size, options_.address, waited,
                                        round_.missing(), num_strangers_.load())
                   : late_message(peer.rank, round_.step(), waited, round_.missing())});
}

void StoreServer::fail(const Failed& failed) {
  failed_ = encode(failed);
  broadcast(FrameKind::kFailed, failed_);
}

void StoreServer::refuse(Peer& peer, Refusal reason, std::uint32_t expected) {
  peer.connection.queue(FrameKind::kRefused, encode(Refused{reason, expected}));
  // A few dozen bytes into an empty buffer: they fit, or the peer is not worth waiting for.
  if (peer.connection.flush()) peer.connection.finish_sending();
  drop(peer);
}

void StoreServer::drop(Peer& peer) {
  if (peer.phase == Peer::Phase::kGone) return;
  const bool was_member = peer.phase == Peer::Phase::kJoined;
  peer.phase = Peer::Phase::kGone;
  peer.connection.close();
  if (was_member) {
    lose(peer.rank, PeerState::kDead);
  } else {
    ++num_strangers_;
  }
}

void StoreServer::drop_late_strangers() {
  const Deadline now = Clock::now();
  for (auto& peer : peers_) {
    if (peer->phase != Peer::Phase::kJoined && peer->deadline <= now) drop(*peer);
  }
}

void StoreServer::flush_all() {
  // drop() broadcasts, which fills other connections: repeat until a turn drops nobody.
  for (bool is_settled = false; !is_settled;) {
    is_settled = true;
    for (auto& peer : peers_) {
      if (peer->phase == Peer::Phase::kGone || peer->connection.flush()) continue;
      is_settled = false;
      drop(*peer);
    }
  }
}

void StoreServer::lose(int rank, PeerState state) {
  PeerState& known = states_[static_cast<std::size_t>(rank)];
  if (known != PeerState::kAlive) return;
  known = state;
  if (lost_rank_ < 0) lost_rank_ = rank;
  broadcast(FrameKind::kPeer, encode(PeerChange{static_cast<std::uint32_t>(rank), state}));
}

void StoreServer::broadcast(FrameKind kind, std::string body) {
  const auto shared = std::make_shared<const std::string>(std::move(body));
  for (auto& peer : peers_) {
    if (peer->phase == Peer::Phase::kJoined) peer->connection.queue(kind, shared);
  }
}

void StoreServer::close_listener() {
  listener_.reset();
  for (auto& peer : peers_) {
    if (peer->phase != Peer::Phase::kJoined) drop(*peer);
  }
  if (num_strangers_.load() > 0) {
    FERRY_WARN("boot.store",
               "the group has formed; {} connections that were no ranks were turned away",
               num_strangers_.load());
  }
}

}  // namespace ferry::boot
