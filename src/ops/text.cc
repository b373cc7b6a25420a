#include "ops/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "ops/finding.hpp"

namespace ferry::ops {

namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number of bytes of the UTF-8 character at `at`, 0 if there is none.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  // U+0080 to U+009F are control characters too: C2 80 to C2 9F.
  if (first == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0) return 0;
  return length;
}

// The leading numbers of a version: "v3.5.19-1" is {3, 5, 19}.
std::vector<unsigned long long> numbers_of(std::string_view version) {
  std::vector<unsigned long long> numbers;
  std::size_t at = 0;
  while (at < version.size() && !is_digit(version[at])) ++at;
  while (at < version.size() && is_digit(version[at])) {
    unsigned long long number = 0;
    const auto [end, error] =
        std::from_chars(version.data() + at, version.data() + version.size(), number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    at = static_cast<std::size_t>(end - version.data());
    if (at < version.size() && version[at] == '.') ++at;
  }
  return numbers;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator, begin)) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && !is_blank(text[at])) ++at;
    words.emplace_back(text.substr(begin, at - begin));
  }
  return words;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines)
    if (!line.empty() && line.back() == '\r') line.pop_back();
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string trim(std::string_view text) {
  while (!text.empty() && (is_blank(text.front()) || text.front() == '\0')) text.remove_prefix(1);
  while (!text.empty() && (is_blank(text.back()) || text.back() == '\0')) text.remove_suffix(1);
  return std::string(text);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string after_mark(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return std::string(at == std::string_view::npos ? text : text.substr(at + mark.size()));
}

std::optional<long long> parse_whole(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    const auto number = parse_hex(text);
    if (!number || *number > 0x7fffffffffffffffULL) return std::nullopt;
    return static_cast<long long>(*number);
  }
  long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<unsigned long long> parse_hex(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
    text.remove_prefix(2);
  unsigned long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> wrap(const std::string& line, std::size_t width) {
  std::vector<std::string> pieces(1);
  for (const std::string& word : split(line, ' ')) {
    std::string& piece = pieces.back();
    if (!piece.empty() && piece.size() + 1 + word.size() > width) {
      pieces.push_back(word);
    } else {
      piece += piece.empty() ? word : " " + word;
    }
  }
  return pieces;
}

int compare_versions(std::string_view a, std::string_view b) {
  std::vector<unsigned long long> left = numbers_of(a);
  std::vector<unsigned long long> right = numbers_of(b);
  const std::size_t length = std::max(left.size(), right.size());
  left.resize(length);
  right.resize(length);
  if (left == right) return 0;
  return left < right ? -1 : 1;
}

bool is_at_least(std::string_view version, std::string_view least) {
  return compare_versions(version, least) >= 0;
}

std::string escape_controls(const std::string& text, bool keep_lines) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text, at);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    if (length == 0 || (is_control && !(keep_lines && byte == '\n'))) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
    } else {
      out.append(text, at, length);
      at += length;
    }
  }
  return out;
}

}  // namespace ferry::ops
