#pragma once

#include <chrono>
#include <string_view>

namespace ferry::bench {

// A bar on stderr, for a terminal, while a bench runs. Redrawn at most ten times a second; gone
// when this goes.
class Progress {
 public:
  // `is_shown` false: silent.
  Progress(bool is_shown, int num_steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::string_view doing);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_shown_ = false;
  int num_steps_ = 0;
  int done_ = 0;
  Clock::time_point drawn_;
};

}  // namespace ferry::bench
