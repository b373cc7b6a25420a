#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <string>

namespace ferry {

namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarn)};
thread_local int t_rank = -1;
thread_local int t_size = 0;

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kOff: return "off";
    case LogLevel::kError: return "error";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
    case LogLevel::kTrace: return "trace";
  }
  return "?";
}

}  // namespace

void set_log_level(LogLevel level) noexcept { g_level.store(static_cast<int>(level)); }

LogLevel log_level() noexcept { return static_cast<LogLevel>(g_level.load()); }

void set_log_rank(int rank, int size) noexcept {
  t_rank = rank;
  t_size = size;
}

void log_line(LogLevel level, std::string_view where, std::string_view message) noexcept {
  try {
    const std::string who = t_rank < 0 ? "ferry" : fmt::format("ferry[{}/{}]", t_rank, t_size);
    const std::string line = fmt::format("{} {} {}: {}\n", who, level_name(level), where, message);
    // One write, so that lines of several ranks do not mix.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // out of memory while logging: the line is lost, the program goes on
  }
}

}  // namespace ferry
