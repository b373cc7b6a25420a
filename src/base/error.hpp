#pragma once

#include <fmt/format.h>

#include <optional>

#include "ferry/error.hpp"

namespace ferry {

// Throws the error type that belongs to `code`.
[[noreturn]] void throw_error(ErrorCode code, const std::string& message);

// The system's words for an errno value.
[[nodiscard]] std::string errno_text(int errno_value);

// Runs `check`, and gives back the Error it threw, if it threw one.
template <typename Check>
[[nodiscard]] std::optional<Error> capture_error(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace ferry

// FERRY_CHECK(condition, code, "format", values...): throws ferry::Error when the condition fails.
#define FERRY_CHECK(condition, code, ...)                            \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::ferry::throw_error((code), ::fmt::format(__VA_ARGS__));      \
  } while (false)

#define FERRY_THROW(code, ...) ::ferry::throw_error((code), ::fmt::format(__VA_ARGS__))

// For defects of the library only: adds file and line.
#define FERRY_CHECK_INTERNAL(condition, ...)                                                  \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::ferry::throw_error(::ferry::ErrorCode::kInternal,                                     \
                           ::fmt::format("{} ({}:{}); try: report it",                        \
                                         ::fmt::format(__VA_ARGS__), __FILE__, __LINE__));    \
  } while (false)
