#pragma once

#include <signal.h>

#include <chrono>

namespace ferry::bench {

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD while it lives, so that they wait to be asked for and
// nothing is left behind half done; restores the mask. One at a time, in a process of one thread.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // The mask of before, for children.
  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

  // The next of them, or 0 after `limit`.
  [[nodiscard]] int wait(std::chrono::milliseconds limit) const;

 private:
  sigset_t watched_{};
  sigset_t before_{};
};

}  // namespace ferry::bench
