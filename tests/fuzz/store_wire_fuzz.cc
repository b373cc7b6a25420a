// Bytes from the network: frames, and every body that a frame can hold. What is taken reads back to
// the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "boot/fd_inbox.hpp"
#include "boot/wire.hpp"

namespace {

using namespace ferry::boot;

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Decode>
void check_body(std::string_view body, Decode decode) {
  const auto value = decode(body);
  if (value) require(encode(*value) == body);
}

void check_bodies(std::string_view body) {
  check_body(body, decode_hello);
  check_body(body, decode_digest);
  check_body(body, decode_welcome);
  check_body(body, decode_refused);
  check_body(body, decode_contribution);
  check_body(body, decode_gathered);
  check_body(body, decode_failed);
  check_body(body, decode_give_up);
  check_body(body, decode_peer_change);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), num_bytes);
  check_bodies(rest);
  (void)decode_push(rest, Digest{});
  for (;;) {
    const ParsedFrame frame = parse_frame(rest, kMaxHandshakeBytes);
    if (frame.status != ParseStatus::kFrame) break;
    require(frame.frame_bytes <= rest.size() && frame.body.size() <= kMaxHandshakeBytes);
    require(encode_header(frame.kind, frame.is_sealed, frame.body.size()) == frame.header);
    check_bodies(frame.body);
    rest.remove_prefix(frame.frame_bytes);
  }
  return 0;
}
