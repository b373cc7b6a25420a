#pragma once

#include <fmt/format.h>

#include <string_view>

namespace ferry {

enum class LogLevel : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4, kTrace = 5 };

// Process-wide sink on stderr: "ferry[3/8] warn boot.store: message". The rank prefix is that of the
// calling thread (thread ranks), or "ferry" alone before a group exists. Never throws.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] LogLevel log_level() noexcept;
void set_log_rank(int rank, int size) noexcept;  // for the calling thread
void log_line(LogLevel level, std::string_view where, std::string_view message) noexcept;

}  // namespace ferry

#define FERRY_LOG(level, where, ...)                                              \
  do {                                                                            \
    if (static_cast<int>(::ferry::log_level()) >= static_cast<int>(level))        \
      ::ferry::log_line((level), (where), ::fmt::format(__VA_ARGS__));            \
  } while (false)
#define FERRY_WARN(where, ...) FERRY_LOG(::ferry::LogLevel::kWarn, where, __VA_ARGS__)
#define FERRY_INFO(where, ...) FERRY_LOG(::ferry::LogLevel::kInfo, where, __VA_ARGS__)
#define FERRY_DEBUG(where, ...) FERRY_LOG(::ferry::LogLevel::kDebug, where, __VA_ARGS__)
