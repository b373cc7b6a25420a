#include "boot/join.hpp"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "boot/store_messages.hpp"

namespace ferry::boot {

namespace {

constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::seconds kWarnAfter{10};
// Rank 0 closes a handshake that takes longer; waiting on is for a new attempt.
constexpr std::chrono::seconds kChallengeLimit{5};

struct Attempt {
  const Meeting& meeting;
  const Key& key;
  Deadline deadline;
  std::string& cause;  // of a failed attempt

  // The next frame; nothing, and the cause, when none comes.
  std::optional<ParsedFrame> receive(Connection& connection, Deadline until) const {
    for (;;) {
      const ParsedFrame frame = connection.next();
      if (frame.status == ParseStatus::kFrame) return frame;
      if (frame.status == ParseStatus::kBad) {
        cause = "what answers there is not a store of this group";
        return std::nullopt;
      }
      // Where this fails a refusal may still be there to read.
      (void)connection.flush();
      if (!wait_ready(connection.fd(), POLLIN, until)) {
        cause = "it accepts the connection and does not answer";
        return std::nullopt;
      }
      if (!connection.fill()) {
        const ParsedFrame last = connection.next();
        if (last.status == ParseStatus::kFrame) return last;
        cause = "it closed the connection";
        return std::nullopt;
      }
    }
  }

  [[noreturn]] void throw_refused(const Refused& refused) const {
    ErrorCode code = ErrorCode::kInvalidArgument;
    if (refused.reason == Refusal::kSecretMissing) code = ErrorCode::kUnavailable;
    if (refused.reason == Refusal::kGroupLost) code = ErrorCode::kPeerLost;
    throw_error(code, refused_message(meeting.rank, meeting.size, meeting.address, refused));
  }

  // The body of the expected frame. Throws on a refusal.
  template <typename Value>
  std::optional<Value> expect(Connection& connection,
                              FrameKind kind,
                              Deadline until,
                              std::optional<Value> (*decode)(std::string_view)) const {
    const std::optional<ParsedFrame> frame = receive(connection, until);
    if (!frame) return std::nullopt;
    if (frame->kind == FrameKind::kRefused) {
      if (const auto refused = decode_refused(frame->body)) throw_refused(*refused);
    }
    std::optional<Value> value;
    if (frame->kind == kind) value = decode(frame->body);
    if (!value) cause = "what answers there is not a store of this group";
    return value;
  }

  std::optional<Joined> run(UniqueFd fd) const {
    Connection connection(std::move(fd));
    Transcript transcript;
    transcript.hello.rank = static_cast<std::uint32_t>(meeting.rank);
    transcript.hello.size = static_cast<std::uint32_t>(meeting.size);
    transcript.hello.has_secret = !meeting.secret.empty();
    transcript.hello.nonce = make_nonce();
    connection.queue(FrameKind::kHello, encode(transcript.hello));
    const auto nonce = expect(connection, FrameKind::kChallenge,
                              std::min(deadline, Clock::now() + kChallengeLimit), &decode_digest);
    if (!nonce) return std::nullopt;
    transcript.server_nonce = *nonce;
    connection.queue(FrameKind::kProof, encode(prove_client(key, transcript)));
    connection.start_session(Session(key, transcript, Side::kClient),
                             kMaxGatheredBytes + kMaxRanks * sizeof(std::uint32_t) + 64);
    const auto welcome = expect(connection, FrameKind::kWelcome, deadline, &decode_welcome);
    if (!welcome) return std::nullopt;
    if (!is_equal(welcome->proof, prove_server(key, transcript))) {
      cause = "what answers there is not a store of this group";
      return std::nullopt;
    }
    return Joined{std::move(connection), welcome->group_id};
  }
};

void check_owner(const UniqueFd& fd, const Meeting& meeting) {
  const std::optional<uid_t> uid = peer_uid(fd.get());
  FERRY_CHECK(uid == ::geteuid(), ErrorCode::kSystem,
              "rank {} does not trust the socket '{}': it belongs to uid {}, this rank to uid {}",
              meeting.rank, meeting.address, uid ? std::to_string(*uid) : "unknown", ::geteuid());
}

}  // namespace

Joined join(const Meeting& meeting, const Address& address, const Key& key, Deadline deadline) {
  std::string cause;
  auto pause = kFirstPause;
  Deadline warn_at = Clock::now() + kWarnAfter;
  for (;;) {
    Connected connected = try_connect(address, deadline);
    const bool is_reached = connected.fd.is_open() || connected.is_refused;
    cause = connected.cause;
    if (connected.fd.is_open()) {
      if (address.is_unix) check_owner(connected.fd, meeting);
      auto joined = Attempt{meeting, key, deadline, cause}.run(std::move(connected.fd));
      if (joined) return std::move(*joined);
    }
    const Deadline now = Clock::now();
    FERRY_CHECK(now + pause < deadline, is_reached ? ErrorCode::kTimeout : ErrorCode::kSystem,
                "rank {} cannot join rank 0 at '{}' within {} ms: {}", meeting.rank,
                meeting.address, meeting.timeout.count(), cause);
    if (now >= warn_at) {
      warn_at = deadline;
      FERRY_WARN("boot.store", "rank {} still tries to join rank 0 at '{}': {}", meeting.rank,
                 meeting.address, cause);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace ferry::boot
