#include "boot/proof.hpp"

#include <sodium.h>

#include "base/error.hpp"

namespace ferry::boot {

namespace {

// libsodium wants one call before the first use; it may be repeated.
void start_sodium() {
  static const bool is_ready = ::sodium_init() >= 0;
  FERRY_CHECK(is_ready, ErrorCode::kUnavailable, "libsodium cannot start: no random numbers");
}

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> make_random() {
  start_sodium();
  std::array<std::uint8_t, kBytes> out{};
  ::randombytes_buf(out.data(), out.size());
  return out;
}

// `label` keeps the uses of one key apart; fixed sizes follow it, so no two inputs run together.
Digest keyed_hash(const Key& key, std::string_view label, std::string_view input) {
  Digest out{};
  crypto_generichash_state state;
  ::crypto_generichash_init(&state, key.data(), key.size(), out.size());
  ::crypto_generichash_update(&state, as_bytes(label), label.size() + 1);  // with its final zero
  ::crypto_generichash_update(&state, as_bytes(input), input.size());
  ::crypto_generichash_final(&state, out.data(), out.size());
  return out;
}

Digest hash_transcript(const Key& key, std::string_view label, const Transcript& transcript) {
  return keyed_hash(key, label, encode(transcript.hello) + encode(transcript.server_nonce));
}

Tag make_tag(const Key& key,
             std::uint64_t counter,
             std::string_view header,
             std::string_view body) {
  Tag out{};
  std::array<unsigned char, sizeof(counter)> number{};
  for (std::size_t i = 0; i < number.size(); ++i) {
    number[i] = static_cast<unsigned char>(counter >> (8 * i));
  }
  crypto_generichash_state state;
  ::crypto_generichash_init(&state, key.data(), key.size(), out.size());
  ::crypto_generichash_update(&state, number.data(), number.size());
  ::crypto_generichash_update(&state, as_bytes(header), header.size());
  ::crypto_generichash_update(&state, as_bytes(body), body.size());
  ::crypto_generichash_final(&state, out.data(), out.size());
  return out;
}

}  // namespace

Key make_key(std::string_view secret) {
  start_sodium();
  return keyed_hash(Key{}, "ferry group secret", secret);
}

Nonce make_nonce() { return make_random<sizeof(Nonce)>(); }

GroupId make_group_id() { return make_random<sizeof(GroupId)>(); }

Digest prove_client(const Key& key, const Transcript& transcript) {
  return hash_transcript(key, "ferry client proof", transcript);
}

Digest prove_server(const Key& key, const Transcript& transcript) {
  return hash_transcript(key, "ferry server proof", transcript);
}

Digest make_descriptor_token(const Key& key, const GroupId& group_id) {
  return keyed_hash(key, "ferry descriptor token", encode(group_id));
}

bool is_equal(const Digest& a, const Digest& b) noexcept {
  return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hash_hex(std::string_view text) {
  start_sodium();
  std::array<std::uint8_t, 16> hash{};
  ::crypto_generichash(hash.data(), hash.size(), as_bytes(text), text.size(), nullptr, 0);
  std::string out;
  for (const std::uint8_t byte : hash) out += fmt::format("{:02x}", byte);
  return out;
}

Session::Session(const Key& key, const Transcript& transcript, Side side) {
  const Key to_server = hash_transcript(key, "ferry client to server", transcript);
  const Key to_client = hash_transcript(key, "ferry server to client", transcript);
  send_key_ = side == Side::kClient ? to_server : to_client;
  receive_key_ = side == Side::kClient ? to_client : to_server;
}

Tag Session::seal(std::string_view header, std::string_view body) {
  return make_tag(send_key_, num_sent_++, header, body);
}

bool Session::open(std::string_view header, std::string_view body, std::string_view tag) {
  const Tag expected = make_tag(receive_key_, num_received_, header, body);
  if (tag.size() != expected.size() ||
      ::sodium_memcmp(expected.data(), tag.data(), expected.size()) != 0) {
    return false;
  }
  ++num_received_;
  return true;
}

}  // namespace ferry::boot
