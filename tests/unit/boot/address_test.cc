#include "boot/address.hpp"

#include <gmock/gmock.h>

#include "ferry/error.hpp"
#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

TEST(Address, ReadsEachForm) {
  const Address local = parse_address("unix:any text: even this");
  const Address host = parse_address("node-1.example:29501");
  const Address v6 = parse_address("[fe80::1]:1");

  EXPECT_TRUE(local.is_unix);
  EXPECT_EQ(local.name, "any text: even this");
  EXPECT_FALSE(host.is_unix);
  EXPECT_EQ(host.host, "node-1.example");
  EXPECT_EQ(host.port, 29501);
  EXPECT_EQ(v6.host, "fe80::1");
  EXPECT_EQ(v6.port, 1);
}

TEST(Address, RejectsWhatIsNeither) {
  for (const char* text :
       {"", "unix:", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "host:-1", "host: 1",
        "ho st:1", "fe80::1:1", "[]:1", "[::1]", "[::1:1", "tcp://host:1"}) {
    EXPECT_EQ(
        test::error_of([&] { (void)parse_address(text); }),
        std::string("invalid argument: address '") + text + "' is neither unix:NAME nor HOST:PORT");
  }
}

TEST(Address, KeepsUsersAndNamesApart) {
  EXPECT_NE(unix_socket_name("a", 1000), unix_socket_name("b", 1000));
  EXPECT_NE(unix_socket_name("a", 1000), unix_socket_name("a", 1001));
  EXPECT_LT(unix_socket_name(std::string(1000, 'x'), 4294967295).size(), 100u);
}

}  // namespace
}  // namespace ferry::boot
