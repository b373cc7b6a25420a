#include "boot/wire.hpp"

#include <gmock/gmock.h>

namespace ferry::boot {
namespace {

using testing::ElementsAre;

std::string frame(FrameKind kind, const std::string& body) {
  return encode_header(kind, false, body.size()) + body;
}

TEST(ParseFrame, ReadsAFrameAndLeavesWhatFollows) {
  const std::string bytes = frame(FrameKind::kGoodbye, "body") + "next";

  const ParsedFrame parsed = parse_frame(bytes, 100);

  EXPECT_EQ(parsed.status, ParseStatus::kFrame);
  EXPECT_EQ(parsed.kind, FrameKind::kGoodbye);
  EXPECT_FALSE(parsed.is_sealed);
  EXPECT_EQ(parsed.body, "body");
  EXPECT_EQ(parsed.tag, "");
  EXPECT_EQ(parsed.frame_bytes, kHeaderBytes + 4);
}

TEST(ParseFrame, ReadsTheTagOfASealedFrame) {
  const std::string bytes =
      encode_header(FrameKind::kPeer, true, 4) + "body" + std::string(kTagBytes, 't');

  const ParsedFrame parsed = parse_frame(bytes, 4);

  EXPECT_EQ(parsed.status, ParseStatus::kFrame);
  EXPECT_TRUE(parsed.is_sealed);
  EXPECT_EQ(parsed.tag, std::string(kTagBytes, 't'));
}

TEST(ParseFrame, WantsMoreOfEveryPrefix) {
  const std::string bytes =
      encode_header(FrameKind::kPeer, true, 4) + "body" + std::string(kTagBytes, 't');

  for (std::size_t num_bytes = 0; num_bytes < bytes.size(); ++num_bytes) {
    EXPECT_EQ(parse_frame(bytes.substr(0, num_bytes), 4).status, ParseStatus::kNeedMore);
  }
}

TEST(ParseFrame, RejectsABodyAboveTheLimitAtItsHeader) {
  const std::string header = encode_header(FrameKind::kHello, false, 101);

  EXPECT_EQ(parse_frame(header, 101).status, ParseStatus::kNeedMore);
  EXPECT_EQ(parse_frame(header, 100).status, ParseStatus::kBad);
}

TEST(ParseFrame, RejectsEveryChangedHeaderByteButTheLength) {
  const std::string good = frame(FrameKind::kHello, "body");
  for (const std::size_t position : {0U, 1U, 2U, 3U, 8U, 9U, 10U, 11U}) {
    std::string bad = good;
    bad[position] = '\x7f';
    EXPECT_EQ(parse_frame(bad, 100).status, ParseStatus::kBad) << position;
  }
}

TEST(ParseFrame, RejectsRubbishAtItsFirstByte) {
  EXPECT_EQ(parse_frame("G", 100).status, ParseStatus::kBad);
  EXPECT_EQ(parse_frame(std::string_view("\0", 1), 100).status, ParseStatus::kBad);
}

// Every body reads back, and neither a shorter nor a longer one is taken.
template <typename Decode>
void expect_exact(const std::string& body, Decode decode) {
  EXPECT_TRUE(decode(body));
  for (std::size_t num_bytes = 0; num_bytes < body.size(); ++num_bytes) {
    EXPECT_FALSE(decode(std::string_view(body).substr(0, num_bytes))) << num_bytes;
  }
  EXPECT_FALSE(decode(body + "x"));
}

TEST(WireBodies, AreTakenAtTheirExactLengthOnly) {
  expect_exact(encode(Hello{}), decode_hello);
  expect_exact(encode(Nonce{}), decode_digest);
  expect_exact(encode(Welcome{}), decode_welcome);
  expect_exact(encode(Refused{}), decode_refused);
  expect_exact(encode(GiveUp{}), decode_give_up);
  expect_exact(encode(PeerChange{1, PeerState::kDead}), decode_peer_change);
  expect_exact(encode(Gathered{1, {"a", "", "ccc"}}), decode_gathered);
}

TEST(WireBodies, KeepTheirValues) {
  Hello hello;
  hello.rank = 0x01020304;
  hello.size = 5;
  hello.has_secret = true;
  hello.nonce[31] = 9;
  const auto hello_back = decode_hello(encode(hello));
  const std::string body = encode(Contribution{0x1122334455667788, "step", "bytes"});
  const auto contribution = decode_contribution(body);
  const auto gathered = decode_gathered(encode(Gathered{3, {"a", "", "ccc"}}));
  const auto failed = decode_failed(encode(Failed{4, ErrorCode::kTimeout, "late"}));
  const auto change = decode_peer_change(encode(PeerChange{6, PeerState::kLeft}));
  const auto give_up = decode_give_up(encode(GiveUp{7, 8}));

  EXPECT_EQ(hello_back->rank, 0x01020304u);
  EXPECT_EQ(hello_back->size, 5u);
  EXPECT_TRUE(hello_back->has_secret);
  EXPECT_EQ(hello_back->nonce, hello.nonce);
  EXPECT_EQ(contribution->round, 0x1122334455667788u);
  EXPECT_EQ(contribution->step, "step");
  EXPECT_EQ(contribution->bytes, "bytes");
  EXPECT_EQ(gathered->round, 3u);
  EXPECT_THAT(gathered->parts, ElementsAre("a", "", "ccc"));
  EXPECT_EQ(failed->code, ErrorCode::kTimeout);
  EXPECT_EQ(failed->message, "late");
  EXPECT_EQ(change->rank, 6u);
  EXPECT_EQ(change->state, PeerState::kLeft);
  EXPECT_EQ(give_up->round, 7u);
  EXPECT_EQ(give_up->waited_ms, 8u);
}

TEST(WireBodies, RejectValuesThatDoNotExist) {
  std::string refused = encode(Refused{});
  refused[0] = 99;
  std::string failed = encode(Failed{});
  failed[8] = 0;
  std::string hello = encode(Hello{});
  hello[12] = 2;

  EXPECT_FALSE(decode_refused(refused));
  EXPECT_FALSE(decode_failed(failed));
  EXPECT_FALSE(decode_hello(hello));
  EXPECT_FALSE(decode_peer_change(encode(PeerChange{1, PeerState::kAlive})));
}

TEST(WireBodies, RejectCountsThatTheBytesDoNotHold) {
  std::string gathered = encode(Gathered{1, {"a"}});
  gathered[8] = gathered[9] = gathered[10] = gathered[11] = '\xff';
  std::string step = encode(Contribution{1, "step", ""});
  step[8] = step[9] = '\xff';
  const std::string long_step(kMaxStepBytes + 1, 's');

  EXPECT_FALSE(decode_gathered(gathered));
  EXPECT_FALSE(decode_contribution(step));
  EXPECT_FALSE(decode_contribution(encode(Contribution{1, long_step, ""})));
}

}  // namespace
}  // namespace ferry::boot
