#include "ops/install/version_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ferry::ops {
namespace {

TEST(VersionTable, HasPinsOfTheRightForm) {
  for (const VersionEntry& entry : version_table()) {
    const std::string pin = entry.pin;
    const bool is_hex = std::all_of(pin.begin(), pin.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    EXPECT_TRUE(is_hex) << entry.name;
    if (!pin.empty()) {
      EXPECT_EQ(pin.size(),
                entry.kind == SourceKind::kGit || entry.kind == SourceKind::kKey ? 40u : 64u)
          << entry.name;
      EXPECT_NE(*entry.from, '\0') << entry.name << " does not say where its pin comes from";
    }
  }
}

TEST(VersionTable, FetchesOverTlsOnly) {
  for (const VersionEntry& entry : version_table())
    EXPECT_EQ(std::string(entry.source).find("http://"), std::string::npos) << entry.name;
}

}  // namespace
}  // namespace ferry::ops
