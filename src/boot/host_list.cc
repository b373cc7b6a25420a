#include "boot/host_list.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"

namespace ferry::boot {

namespace {

constexpr std::size_t kMaxHosts = 65536;
constexpr std::size_t kMaxDigits = 9;
constexpr std::size_t kShownBytes = 200;

[[noreturn]] void throw_malformed(std::string_view list) {
  FERRY_THROW(ErrorCode::kInvalidArgument, "node list '{}' is not of the form node[01-03,7],gpu5",
              list.substr(0, kShownBytes));
}

void check_count(std::size_t num_hosts, std::string_view list) {
  FERRY_CHECK(num_hosts <= kMaxHosts, ErrorCode::kInvalidArgument,
              "node list '{}' has more than {} hosts", list.substr(0, kShownBytes), kMaxHosts);
}

std::uint32_t parse_digits(std::string_view digits, std::string_view list) {
  std::uint32_t number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_whole = result.ec == std::errc{} && result.ptr == digits.data() + digits.size();
  if (!is_whole || digits.size() > kMaxDigits) throw_malformed(list);
  return number;
}

// "01-03,7" to 01, 02, 03, 7.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> numbers;
  for (;;) {
    const std::size_t comma = ranges.find(',');
    const std::string_view range = ranges.substr(0, comma);
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
    const std::uint32_t begin = parse_digits(first, list);
    const std::uint32_t end = parse_digits(last, list);
    if (begin > end) throw_malformed(list);
    check_count(numbers.size() + (end - begin) + 1, list);
    for (std::uint32_t number = begin; number <= end; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
    }
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

bool is_host_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_';
  });
}

// One entry of the list: text and brackets in turn; every bracket multiplies.
std::vector<std::string> expand_entry(std::string_view entry, std::string_view list) {
  std::vector<std::string> hosts{""};
  while (!entry.empty()) {
    const std::size_t open = std::min(entry.find('['), entry.size());
    if (!is_host_text(entry.substr(0, open))) throw_malformed(list);
    for (std::string& host : hosts) host += entry.substr(0, open);
    entry.remove_prefix(open);
    if (entry.empty()) break;
    const std::size_t close = entry.find(']');
    if (close == std::string_view::npos) throw_malformed(list);
    const auto numbers = expand_ranges(entry.substr(1, close - 1), list);
    check_count(hosts.size() * numbers.size(), list);
    std::vector<std::string> product;
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) product.push_back(host + number);
    }
    hosts = std::move(product);
    entry.remove_prefix(close + 1);
  }
  if (hosts.front().empty()) throw_malformed(list);
  return hosts;
}

// The next comma that is in no bracket.
std::size_t find_separator(std::string_view text) {
  bool is_inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') is_inside = true;
    if (text[i] == ']') is_inside = false;
    if (text[i] == ',' && !is_inside) return i;
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts;
  std::string_view rest = list;
  for (;;) {
    const std::size_t separator = find_separator(rest);
    std::vector<std::string> more = expand_entry(rest.substr(0, separator), list);
    check_count(hosts.size() + more.size(), list);
    std::move(more.begin(), more.end(), std::back_inserter(hosts));
    if (separator == std::string_view::npos) return hosts;
    rest.remove_prefix(separator + 1);
  }
}

}  // namespace ferry::boot
