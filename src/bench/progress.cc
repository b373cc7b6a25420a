#include "bench/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace ferry::bench {

namespace {

void write_to_stderr(const std::string& text) {
  // A bar that cannot be drawn is not worth an error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Progress::Progress(bool is_shown, int num_steps)
    : is_shown_(is_shown), num_steps_(std::max(num_steps, 1)) {}

Progress::~Progress() {
  if (is_shown_) write_to_stderr("\r\x1b[K");
}

void Progress::advance(std::string_view doing) {
  constexpr int kWidth = 30;
  done_ = std::min(done_ + 1, num_steps_);
  if (!is_shown_) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100) && done_ < num_steps_) return;
  drawn_ = now;
  const auto filled = static_cast<std::size_t>(kWidth) * static_cast<std::size_t>(done_) /
                      static_cast<std::size_t>(num_steps_);
  write_to_stderr(fmt::format("\r[{}{}] {}/{} {}\x1b[K", std::string(filled, '='),
                              std::string(kWidth - filled, ' '), done_, num_steps_, doing));
}

}  // namespace ferry::bench
