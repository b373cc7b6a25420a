#pragma once

#include <cstdint>
#include <string_view>

#include "boot/wire.hpp"

namespace ferry::boot {

// Proof of a shared secret by keyed hash (BLAKE2b of libsodium); the secret never crosses the wire.
//
//   client                                   server
//   hello(rank, size, client nonce)     ->
//                                       <-   challenge(server nonce)
//   proof = H(key, "client", both)      ->
//                                       <-   welcome(H(key, "server", both)), sealed
//
// Both nonces are fresh, so neither a proof nor a frame of another session fits. The client proves
// first: a stranger who connects learns nothing to guess the secret from. Every later frame carries
// a tag over a counter, so that frames cannot be altered, replayed, reordered or left out. Frames
// are not encrypted.
using Key = std::array<std::uint8_t, 32>;

// The key of a group; an empty secret gives a key that everybody knows (Unix sockets, where the
// kernel vouches for the peer's uid, and FERRY_INSECURE).
[[nodiscard]] Key make_key(std::string_view secret);

[[nodiscard]] Nonce make_nonce();
[[nodiscard]] GroupId make_group_id();

// What both sides have said before the proofs.
struct Transcript {
  Hello hello;
  Nonce server_nonce{};
};

[[nodiscard]] Digest prove_client(const Key& key, const Transcript& transcript);
[[nodiscard]] Digest prove_server(const Key& key, const Transcript& transcript);
// Known to members only and never sent over the network: what a descriptor exchange shows.
[[nodiscard]] Digest make_descriptor_token(const Key& key, const GroupId& group_id);

// In constant time.
[[nodiscard]] bool is_equal(const Digest& a, const Digest& b) noexcept;

// "a7c0…": lower-case hex of a hash of `text`, 32 digits.
[[nodiscard]] std::string hash_hex(std::string_view text);

enum class Side : std::uint8_t { kClient, kServer };

// Tags the frames of one connection, one counter per direction.
class Session {
 public:
  Session(const Key& key, const Transcript& transcript, Side side);

  [[nodiscard]] Tag seal(std::string_view header, std::string_view body);
  // False: not from this session, or not the next frame of it.
  [[nodiscard]] bool open(std::string_view header, std::string_view body, std::string_view tag);

 private:
  Key send_key_;
  Key receive_key_;
  std::uint64_t num_sent_ = 0;
  std::uint64_t num_received_ = 0;
};

}  // namespace ferry::boot
