#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>

namespace ferry::ops {

// One line of a log as a person would see it: without terminal colours, cursor movements and other
// control characters; of a line that a progress bar overwrote, the last state.
struct LogLine {
  std::int64_t number = 0;  // counts from 1
  std::string_view text;    // valid during the call only
};

struct LogSize {
  std::int64_t bytes = 0;
  std::int64_t lines = 0;
  std::int64_t cut_lines = 0;  // longer than kLongestLine, read up to there
};

// What is read of one line. Whatever prints more than this into a line is no message.
inline constexpr std::size_t kLongestLine = 8192;

// Reads to the end in bounded memory, whatever the bytes are, and hands over every line that has
// any text. Never throws on content.
LogSize read_log(std::istream& stream, const std::function<void(const LogLine&)>& take);

// The same for one line's raw bytes.
[[nodiscard]] std::string visible_text(std::string_view raw);

}  // namespace ferry::ops
