#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::ops {

// Small readings of text, for files of /proc and /sys and for what is printed.

// "a,,b" at ',' is {"a", "", "b"}; "" is {""}.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
// The words between runs of blanks.
[[nodiscard]] std::vector<std::string> words_of(std::string_view text);
// Lines without their ends; a last empty line is none.
[[nodiscard]] std::vector<std::string> lines_of(std::string_view text);
[[nodiscard]] std::string trim(std::string_view text);
[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view separator);
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] bool contains(std::string_view text, std::string_view part);

// What follows the first `mark`: "1.25" of "MLX5_1.25" at "_"; the whole text without one.
[[nodiscard]] std::string after_mark(std::string_view text, std::string_view mark);

// Whole decimal or 0x numbers and nothing else; nullopt on anything that does not fit.
[[nodiscard]] std::optional<long long> parse_whole(std::string_view text);
[[nodiscard]] std::optional<unsigned long long> parse_hex(std::string_view text);

// Pieces of at most `width` columns, broken at blanks; a longer word stays whole.
[[nodiscard]] std::vector<std::string> wrap(const std::string& line, std::size_t width);

// Compares "3.4.5" with "3.10": numbers by value, what is missing counts as 0, anything after the
// numbers ("rc1", "+cu129", "-1") is ignored. Negative, 0 or positive.
[[nodiscard]] int compare_versions(std::string_view a, std::string_view b);
[[nodiscard]] bool is_at_least(std::string_view version, std::string_view least);

}  // namespace ferry::ops
