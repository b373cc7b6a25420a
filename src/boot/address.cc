#include "boot/address.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "boot/proof.hpp"

namespace ferry::boot {

namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxHostBytes = 255;

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

// Splits "HOST:PORT" and "[IPV6]:PORT"; false where the text is neither.
bool split_host_port(std::string_view text, Address& address) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return false;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return false;  // an IPv6 address without brackets has no unambiguous port
  }
  if (host.empty() || host.size() > kMaxHostBytes || !is_plain(host)) return false;
  const auto result = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (result.ec != std::errc{} || result.ptr != port.data() + port.size()) return false;
  address.host = host;
  return address.port != 0;
}

}  // namespace

Address parse_address(const std::string& text) {
  Address address;
  address.text = text;
  if (text.compare(0, kUnixPrefix.size(), kUnixPrefix) == 0) {
    address.is_unix = true;
    address.name = text.substr(kUnixPrefix.size());
    if (!address.name.empty() && address.name.size() <= kMaxNameBytes) return address;
  } else if (split_host_port(text, address)) {
    return address;
  }
  FERRY_THROW(ErrorCode::kInvalidArgument, "address '{}' is neither unix:NAME nor HOST:PORT",
              text.substr(0, kMaxHostBytes));
}

std::string unix_socket_name(const std::string& name, uid_t uid) {
  return fmt::format("ferry-{}-{}", uid, hash_hex(name));
}

}  // namespace ferry::boot
