#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace ferry::boot {

// Where a group meets.
struct Address {
  bool is_unix = false;
  std::string name;  // unix:NAME
  std::string host;  // HOST:PORT, brackets of an IPv6 address removed
  std::uint16_t port = 0;
  std::string text;  // as given, for messages
};

// "unix:NAME", "HOST:PORT" or "[IPV6]:PORT". Throws kInvalidArgument.
[[nodiscard]] Address parse_address(const std::string& text);

// The abstract socket name of unix:NAME for the ranks of one user, without its leading zero byte.
[[nodiscard]] std::string unix_socket_name(const std::string& name, uid_t uid);

}  // namespace ferry::boot
