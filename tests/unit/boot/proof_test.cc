#include "boot/proof.hpp"

#include <gmock/gmock.h>

namespace ferry::boot {
namespace {

Transcript make_transcript() {
  Transcript transcript;
  transcript.hello.rank = 1;
  transcript.hello.size = 2;
  transcript.hello.nonce = make_nonce();
  transcript.server_nonce = make_nonce();
  return transcript;
}

TEST(Proof, DependsOnSecretNoncesRankAndSide) {
  const Key key = make_key("secret");
  const Transcript transcript = make_transcript();
  Transcript other_rank = transcript;
  other_rank.hello.rank = 0;
  Transcript other_nonce = transcript;
  other_nonce.server_nonce = make_nonce();
  const Digest proof = prove_client(key, transcript);

  EXPECT_TRUE(is_equal(proof, prove_client(key, transcript)));
  EXPECT_FALSE(is_equal(proof, prove_server(key, transcript)));
  EXPECT_FALSE(is_equal(proof, prove_client(make_key("Secret"), transcript)));
  EXPECT_FALSE(is_equal(proof, prove_client(key, other_rank)));
  EXPECT_FALSE(is_equal(proof, prove_client(key, other_nonce)));
}

TEST(Proof, TakesASecretOfAnyLength) {
  EXPECT_NE(make_key(""), make_key("a"));
  EXPECT_NE(make_key(std::string(100000, 'a')), make_key(std::string(100001, 'a')));
}

TEST(Session, OpensWhatTheOtherSideSealedInOrder) {
  const Key key = make_key("secret");
  const Transcript transcript = make_transcript();
  Session client(key, transcript, Side::kClient);
  Session server(key, transcript, Side::kServer);

  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(server.open("header", "body", encode(client.seal("header", "body"))));
    EXPECT_TRUE(client.open("header", "body", encode(server.seal("header", "body"))));
  }
}

TEST(Session, RejectsWhatIsChangedReplayedReorderedOrReflected) {
  const Key key = make_key("secret");
  const Transcript transcript = make_transcript();
  Session client(key, transcript, Side::kClient);
  Session server(key, transcript, Side::kServer);
  const std::string first = encode(client.seal("header", "body"));
  const std::string second = encode(client.seal("header", "body"));

  EXPECT_FALSE(server.open("header", "body", second));
  EXPECT_FALSE(server.open("header", "bodY", first));
  EXPECT_FALSE(server.open("headeR", "body", first));
  EXPECT_FALSE(server.open("header", "body", first.substr(1)));
  EXPECT_FALSE(server.open("header", "body", ""));
  EXPECT_TRUE(server.open("header", "body", first));
  EXPECT_FALSE(server.open("header", "body", first));
  EXPECT_FALSE(client.open("header", "body",
                           encode(Session(key, transcript, Side::kClient).seal("header", "body"))));
}

TEST(DescriptorToken, BelongsToOneGroup) {
  const Key key = make_key("secret");

  EXPECT_FALSE(is_equal(make_descriptor_token(key, make_group_id()),
                        make_descriptor_token(key, make_group_id())));
}

TEST(HashHex, HasThirtyTwoDigits) {
  EXPECT_EQ(hash_hex("").size(), 32u);
  EXPECT_NE(hash_hex("a"), hash_hex("b"));
  EXPECT_EQ(hash_hex("a").find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace ferry::boot
