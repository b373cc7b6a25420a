#include "boot/wire.hpp"

#include <algorithm>
#include <cstring>

namespace ferry::boot {

namespace {

constexpr std::string_view kMagic = "FRY1";
constexpr std::size_t kMaxMessageBytes = 4096;

template <typename Integer>
void append(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    out.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF));
  }
}

template <std::size_t kBytes>
void append(std::string& out, const std::array<std::uint8_t, kBytes>& bytes) {
  out.append(bytes.begin(), bytes.end());
}

// Takes values from the front. After the first that is not there, is_good() is false and every
// value is zero.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename Integer>
  Integer take() {
    const std::string_view bytes = take_bytes(sizeof(Integer));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes[i])) << (8 * i);
    }
    return static_cast<Integer>(value);
  }

  template <std::size_t kBytes>
  void take(std::array<std::uint8_t, kBytes>& out) {
    const std::string_view bytes = take_bytes(kBytes);
    if (bytes.size() == kBytes) std::memcpy(out.data(), bytes.data(), kBytes);
  }

  std::string_view take_bytes(std::size_t num_bytes) {
    if (num_bytes > rest_.size()) {
      is_good_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, num_bytes);
    rest_.remove_prefix(num_bytes);
    return bytes;
  }

  std::string_view take_rest() { return take_bytes(rest_.size()); }

  [[nodiscard]] bool is_good() const { return is_good_; }
  [[nodiscard]] bool is_done() const { return is_good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool is_good_ = true;
};

}  // namespace

ParsedFrame parse_frame(std::string_view bytes, std::size_t max_body_bytes) noexcept {
  ParsedFrame frame;
  const std::size_t num_magic = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, num_magic) != kMagic.substr(0, num_magic)) return frame;
  if (bytes.size() < kHeaderBytes) {
    frame.status = ParseStatus::kNeedMore;
    return frame;
  }
  ByteReader reader(bytes.substr(kMagic.size(), kHeaderBytes - kMagic.size()));
  const auto body_bytes = reader.take<std::uint32_t>();
  const auto kind = reader.take<std::uint8_t>();
  const auto is_sealed = reader.take<std::uint8_t>();
  const auto zero = reader.take<std::uint16_t>();
  if (body_bytes > max_body_bytes || is_sealed > 1 || zero != 0) return frame;
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) ||
      kind > static_cast<std::uint8_t>(FrameKind::kGoodbye)) {
    return frame;
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.is_sealed = is_sealed == 1;
  const std::size_t tag_bytes = frame.is_sealed ? kTagBytes : 0;
  frame.frame_bytes = kHeaderBytes + body_bytes + tag_bytes;
  if (bytes.size() < frame.frame_bytes) {
    frame.status = ParseStatus::kNeedMore;
    return frame;
  }
  frame.header = bytes.substr(0, kHeaderBytes);
  frame.body = bytes.substr(kHeaderBytes, body_bytes);
  frame.tag = bytes.substr(kHeaderBytes + body_bytes, tag_bytes);
  frame.status = ParseStatus::kFrame;
  return frame;
}

std::string encode_header(FrameKind kind, bool is_sealed, std::size_t body_bytes) {
  std::string out(kMagic);
  append(out, static_cast<std::uint32_t>(body_bytes));
  append(out, static_cast<std::uint8_t>(kind));
  append(out, static_cast<std::uint8_t>(is_sealed ? 1 : 0));
  append(out, std::uint16_t{0});
  return out;
}

std::string encode(const Hello& hello) {
  std::string out;
  append(out, hello.version);
  append(out, hello.rank);
  append(out, hello.size);
  append(out, static_cast<std::uint8_t>(hello.has_secret ? 1 : 0));
  append(out, hello.nonce);
  return out;
}

std::optional<Hello> decode_hello(std::string_view body) {
  ByteReader reader(body);
  Hello hello;
  hello.version = reader.take<std::uint32_t>();
  hello.rank = reader.take<std::uint32_t>();
  hello.size = reader.take<std::uint32_t>();
  const auto has_secret = reader.take<std::uint8_t>();
  reader.take(hello.nonce);
  if (!reader.is_done() || has_secret > 1) return std::nullopt;
  hello.has_secret = has_secret == 1;
  return hello;
}

std::optional<Digest> decode_digest(std::string_view body) {
  ByteReader reader(body);
  Digest digest{};
  reader.take(digest);
  if (!reader.is_done()) return std::nullopt;
  return digest;
}

std::string encode(const Welcome& welcome) {
  std::string out;
  append(out, welcome.group_id);
  append(out, welcome.proof);
  return out;
}

std::optional<Welcome> decode_welcome(std::string_view body) {
  ByteReader reader(body);
  Welcome welcome;
  reader.take(welcome.group_id);
  reader.take(welcome.proof);
  if (!reader.is_done()) return std::nullopt;
  return welcome;
}

std::string encode(const Refused& refused) {
  std::string out;
  append(out, static_cast<std::uint8_t>(refused.reason));
  append(out, refused.expected);
  return out;
}

std::optional<Refused> decode_refused(std::string_view body) {
  ByteReader reader(body);
  const auto reason = reader.take<std::uint8_t>();
  const auto expected = reader.take<std::uint32_t>();
  if (!reader.is_done() || reason < static_cast<std::uint8_t>(Refusal::kVersion) ||
      reason > static_cast<std::uint8_t>(Refusal::kGroupLost)) {
    return std::nullopt;
  }
  return Refused{static_cast<Refusal>(reason), expected};
}

std::string encode(const Contribution& contribution) {
  std::string out;
  append(out, contribution.round);
  append(out, static_cast<std::uint16_t>(contribution.step.size()));
  out += contribution.step;
  out += contribution.bytes;
  return out;
}

std::optional<Contribution> decode_contribution(std::string_view body) {
  ByteReader reader(body);
  Contribution contribution;
  contribution.round = reader.take<std::uint64_t>();
  const auto step_bytes = reader.take<std::uint16_t>();
  contribution.step = reader.take_bytes(step_bytes);
  contribution.bytes = reader.take_rest();
  if (!reader.is_done() || contribution.step.size() > kMaxStepBytes ||
      contribution.bytes.size() > kMaxContributionBytes) {
    return std::nullopt;
  }
  return contribution;
}

std::string encode(const Gathered& gathered) {
  std::string out;
  append(out, gathered.round);
  append(out, static_cast<std::uint32_t>(gathered.parts.size()));
  for (const std::string& part : gathered.parts) {
    append(out, static_cast<std::uint32_t>(part.size()));
  }
  for (const std::string& part : gathered.parts) out += part;
  return out;
}

std::optional<Gathered> decode_gathered(std::string_view body) {
  ByteReader reader(body);
  Gathered gathered;
  gathered.round = reader.take<std::uint64_t>();
  const auto num_parts = reader.take<std::uint32_t>();
  if (!reader.is_good() || num_parts > kMaxRanks) return std::nullopt;
  std::vector<std::uint32_t> part_bytes(num_parts);
  for (std::uint32_t& bytes : part_bytes) bytes = reader.take<std::uint32_t>();
  for (const std::uint32_t bytes : part_bytes) {
    gathered.parts.emplace_back(reader.take_bytes(bytes));
  }
  if (!reader.is_done()) return std::nullopt;
  return gathered;
}

std::string encode(const Failed& failed) {
  std::string out;
  append(out, failed.round);
  append(out, static_cast<std::uint8_t>(failed.code));
  out += failed.message.substr(0, kMaxMessageBytes);
  return out;
}

std::optional<Failed> decode_failed(std::string_view body) {
  ByteReader reader(body);
  Failed failed;
  failed.round = reader.take<std::uint64_t>();
  const auto code = reader.take<std::uint8_t>();
  failed.message = reader.take_rest();
  if (!reader.is_done() || failed.message.size() > kMaxMessageBytes ||
      code < static_cast<std::uint8_t>(ErrorCode::kInvalidArgument) ||
      code > static_cast<std::uint8_t>(ErrorCode::kInternal)) {
    return std::nullopt;
  }
  failed.code = static_cast<ErrorCode>(code);
  return failed;
}

std::string encode(const GiveUp& give_up) {
  std::string out;
  append(out, give_up.round);
  append(out, give_up.waited_ms);
  return out;
}

std::optional<GiveUp> decode_give_up(std::string_view body) {
  ByteReader reader(body);
  GiveUp give_up;
  give_up.round = reader.take<std::uint64_t>();
  give_up.waited_ms = reader.take<std::uint64_t>();
  if (!reader.is_done()) return std::nullopt;
  return give_up;
}

std::string encode(const PeerChange& change) {
  std::string out;
  append(out, change.rank);
  append(out, static_cast<std::uint8_t>(change.state));
  return out;
}

std::optional<PeerChange> decode_peer_change(std::string_view body) {
  ByteReader reader(body);
  PeerChange change;
  change.rank = reader.take<std::uint32_t>();
  const auto state = reader.take<std::uint8_t>();
  if (!reader.is_done() || (state != static_cast<std::uint8_t>(PeerState::kLeft) &&
                            state != static_cast<std::uint8_t>(PeerState::kDead))) {
    return std::nullopt;
  }
  change.state = static_cast<PeerState>(state);
  return change;
}

}  // namespace ferry::boot
