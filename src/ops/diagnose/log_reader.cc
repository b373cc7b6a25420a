#include "ops/diagnose/log_reader.hpp"

#include <array>

namespace ferry::ops {

namespace {

// The number of bytes of the terminal sequence that starts with the escape at `at`: ESC [ ...
// final, ESC ] ... BEL or ESC \, or ESC and one more.
std::size_t sequence_length(std::string_view raw, std::size_t at) {
  std::size_t end = at + 1;
  if (end >= raw.size()) return 1;
  if (raw[end] == '[') {
    for (++end; end < raw.size() && !(raw[end] >= '@' && raw[end] <= '~');) ++end;
  } else if (raw[end] == ']') {
    for (++end; end < raw.size() && raw[end] != '\a' && raw[end] != '\\';) ++end;
  }
  return std::min(end + 1, raw.size()) - at;
}

class LineSplitter {
 public:
  explicit LineSplitter(const std::function<void(const LogLine&)>& take) : take_(take) {}

  void feed(std::string_view bytes) {
    size_.bytes += static_cast<std::int64_t>(bytes.size());
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      append(bytes.substr(0, end));
      if (end == std::string_view::npos) return;
      finish_line();
      bytes.remove_prefix(end + 1);
    }
  }

  LogSize finish() {
    if (has_bytes_) finish_line();
    return size_;
  }

 private:
  void append(std::string_view part) {
    has_bytes_ = has_bytes_ || !part.empty();
    const std::size_t room = kLongestLine - line_.size();
    is_cut_ = is_cut_ || part.size() > room;
    line_ += part.substr(0, room);
  }

  void finish_line() {
    ++size_.lines;
    if (is_cut_) ++size_.cut_lines;
    const std::string text = visible_text(line_);
    if (!text.empty()) take_({size_.lines, text});
    line_.clear();
    has_bytes_ = is_cut_ = false;
  }

  const std::function<void(const LogLine&)>& take_;
  LogSize size_;
  std::string line_;
  bool has_bytes_ = false;
  bool is_cut_ = false;
};

}  // namespace

std::string visible_text(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (std::size_t at = 0; at < raw.size(); ++at) {
    const auto byte = static_cast<unsigned char>(raw[at]);
    if (byte == 0x1b) {
      at += sequence_length(raw, at) - 1;
    } else if (byte == '\r') {
      // What follows is written over what stands there; a carriage return at the end is a line end.
      if (raw.find_first_not_of("\r\n", at) != std::string_view::npos) text.clear();
    } else if (byte == '\t') {
      text += ' ';
    } else if (byte >= 0x20 && byte != 0x7f) {
      text += raw[at];
    }
  }
  return text;
}

LogSize read_log(std::istream& stream, const std::function<void(const LogLine&)>& take) {
  LineSplitter splitter(take);
  std::array<char, 65536> block{};
  while (stream) {
    stream.read(block.data(), block.size());
    splitter.feed({block.data(), static_cast<std::size_t>(stream.gcount())});
  }
  return splitter.finish();
}

}  // namespace ferry::ops
