#include "ops/diagnose/log_reader.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace ferry::ops {
namespace {

std::vector<std::string> lines_in(const std::string& bytes, LogSize* size = nullptr) {
  std::istringstream stream(bytes);
  std::vector<std::string> lines;
  const LogSize read =
      read_log(stream, [&](const LogLine& line) { lines.emplace_back(line.text); });
  if (size != nullptr) *size = read;
  return lines;
}

TEST(ReadLog, HandsOverEveryLineThatHasText) {
  LogSize size;
  EXPECT_EQ(lines_in("one\n\ntwo\r\nthree", &size),
            (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(size.lines, 4);
  EXPECT_EQ(size.bytes, 15);
}

TEST(ReadLog, TakesColoursAndTitlesOut) {
  EXPECT_EQ(visible_text("\x1b[31;1merror\x1b[0m: \x1b]0;title\x07no \x1b(gid"), "error: no gid");
}

TEST(ReadLog, KeepsTheLastStateOfAProgressBar) {
  EXPECT_EQ(visible_text("10%\r50%\r100% done\r"), "100% done");
}

TEST(ReadLog, DropsControlCharactersAndNul) {
  EXPECT_EQ(visible_text(std::string("a\0b\x07\tc", 6)), "ab c");
}

TEST(ReadLog, CutsALineThatNeverEnds) {
  LogSize size;
  const auto lines = lines_in(std::string(3 * kLongestLine, 'x') + "\nnext\n", &size);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), kLongestLine);
  EXPECT_EQ(lines[1], "next");
  EXPECT_EQ(size.cut_lines, 1);
}

TEST(ReadLog, EndsAtATerminalSequenceThatDoesNot) {
  EXPECT_EQ(visible_text("a\x1b"), "a");
  EXPECT_EQ(visible_text("a\x1b["), "a");
  EXPECT_EQ(visible_text("a\x1b]0;"), "a");
}

}  // namespace
}  // namespace ferry::ops
