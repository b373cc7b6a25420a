#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "boot/store.hpp"
#include "ferry/error.hpp"

namespace ferry::boot {

// The store's wire format, little endian. A frame is
//   "FRY1" | u32 body_bytes | u8 kind | u8 is_sealed | u16 zero | body | 16-byte tag if sealed
// Handshake: hello, challenge, proof in the clear, then welcome and all later frames sealed with
// the session's key and a counter per direction (proof.hpp). `refused` answers a hello or a proof
// and is always in the clear. Everything here is a pure function of bytes from outside.
enum class FrameKind : std::uint8_t {
  kHello = 1,       // client: who I am
  kChallenge = 2,   // server: a fresh nonce
  kProof = 3,       // client: a keyed hash over both nonces
  kWelcome = 4,     // server: its own keyed hash and the group's id
  kRefused = 5,     // server: why not
  kContribute = 6,  // client: its part of a collective round
  kGathered = 7,    // server: all parts, in rank order
  kFailed = 8,      // server: the round cannot complete
  kGiveUp = 9,      // client, at its deadline: fail the round, naming who is missing
  kPeer = 10,       // server: a rank died or left
  kGoodbye = 11,    // client: I leave
};

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr int kMaxRanks = 4096;
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kMaxHandshakeBytes = 128;  // a stranger's frame, before its proof
inline constexpr std::size_t kMaxContributionBytes = 64U << 20;  // one rank's part of a round
inline constexpr std::size_t kMaxGatheredBytes = 1U << 30;       // all parts of a round
inline constexpr std::size_t kMaxStepBytes = 256;                // the name of a round

using Nonce = std::array<std::uint8_t, 32>;
using Digest = std::array<std::uint8_t, 32>;
using Tag = std::array<std::uint8_t, kTagBytes>;
using GroupId = std::array<std::uint8_t, 16>;

enum class ParseStatus : std::uint8_t { kNeedMore, kFrame, kBad };

// Views into the parsed bytes.
struct ParsedFrame {
  ParseStatus status = ParseStatus::kBad;
  FrameKind kind = FrameKind::kHello;
  bool is_sealed = false;
  std::string_view header;
  std::string_view body;
  std::string_view tag;
  std::size_t frame_bytes = 0;  // also set with kNeedMore once the header is there
};

// The frame at the start of `bytes`. kBad as soon as the bytes cannot become a frame whose body has
// at most `max_body_bytes`; no byte after the frame is looked at.
[[nodiscard]] ParsedFrame parse_frame(std::string_view bytes, std::size_t max_body_bytes) noexcept;

[[nodiscard]] std::string encode_header(FrameKind kind, bool is_sealed, std::size_t body_bytes);

struct Hello {
  std::uint32_t version = kProtocolVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  bool has_secret = false;
  Nonce nonce{};
};

struct Welcome {
  GroupId group_id{};
  Digest proof{};
};

enum class Refusal : std::uint8_t {
  kVersion = 1,           // expected: protocol version
  kSize = 2,              // expected: group size
  kRankOutOfRange = 3,    // expected: group size
  kRankTaken = 4,         // expected: unused
  kSecretMissing = 5,     // the group has a secret, the client none
  kSecretUnexpected = 6,  // the client has a secret, the group none
  kWrongSecret = 7,       // the proof does not fit
  kGroupLost = 8,         // expected: the rank that died or left while the group formed
};

struct Refused {
  Refusal reason = Refusal::kVersion;
  std::uint32_t expected = 0;
};

struct Contribution {
  std::uint64_t round = 0;
  std::string_view step;  // views into the body
  std::string_view bytes;
};

struct Gathered {
  std::uint64_t round = 0;
  std::vector<std::string> parts;
};

struct Failed {
  std::uint64_t round = 0;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

struct GiveUp {
  std::uint64_t round = 0;
  std::uint64_t waited_ms = 0;
};

struct PeerChange {
  std::uint32_t rank = 0;
  PeerState state = PeerState::kAlive;
};

[[nodiscard]] std::string encode(const Hello& hello);
[[nodiscard]] std::string encode(const Welcome& welcome);
[[nodiscard]] std::string encode(const Refused& refused);
[[nodiscard]] std::string encode(const Contribution& contribution);
[[nodiscard]] std::string encode(const Gathered& gathered);
[[nodiscard]] std::string encode(const Failed& failed);
[[nodiscard]] std::string encode(const GiveUp& give_up);
[[nodiscard]] std::string encode(const PeerChange& change);
template <std::size_t kBytes>
[[nodiscard]] std::string encode(const std::array<std::uint8_t, kBytes>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Nothing where the body is not exactly one such value.
[[nodiscard]] std::optional<Hello> decode_hello(std::string_view body);
[[nodiscard]] std::optional<Digest> decode_digest(std::string_view body);  // challenge and proof
[[nodiscard]] std::optional<Welcome> decode_welcome(std::string_view body);
[[nodiscard]] std::optional<Refused> decode_refused(std::string_view body);
[[nodiscard]] std::optional<Contribution> decode_contribution(std::string_view body);
[[nodiscard]] std::optional<Gathered> decode_gathered(std::string_view body);
[[nodiscard]] std::optional<Failed> decode_failed(std::string_view body);
[[nodiscard]] std::optional<GiveUp> decode_give_up(std::string_view body);
[[nodiscard]] std::optional<PeerChange> decode_peer_change(std::string_view body);

}  // namespace ferry::boot
