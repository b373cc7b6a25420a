#include "ops/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/finding.hpp"

namespace ferry::ops {

using testing::ElementsAre;

TEST(Text, SplitsAtEverySeparator) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(words_of(" a\t b\n"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of("a\r\nb\n"), ElementsAre("a", "b"));
}

TEST(Text, ComparesVersionsByTheirNumbers) {
  EXPECT_LT(compare_versions("3.4.5", "3.10"), 0);
  EXPECT_EQ(compare_versions("v3.5.0-1", "3.5"), 0);
  EXPECT_GT(compare_versions("2.9.1+cu129", "2.9.0"), 0);
  EXPECT_TRUE(is_at_least("6.1.0-13-amd64", "5.12"));
}

TEST(Text, TakesOnlyWholeNumbers) {
  EXPECT_EQ(parse_whole("0x10"), 16);
  EXPECT_EQ(parse_whole("-1"), -1);
  EXPECT_EQ(parse_whole("12a"), std::nullopt);
  EXPECT_EQ(parse_whole(""), std::nullopt);
  EXPECT_EQ(parse_whole("99999999999999999999"), std::nullopt);
  EXPECT_EQ(parse_hex("1ff"), 0x1ffU);
}

TEST(Text, EscapesWhatCouldDriveATerminal) {
  EXPECT_EQ(escape_controls("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(escape_controls("a\nb", true), "a\nb");
  EXPECT_EQ(escape_controls("\xc3\xa4\xff\xc2\x9b"), "\xc3\xa4\\xff\\xc2\\x9b");
}

}  // namespace ferry::ops
