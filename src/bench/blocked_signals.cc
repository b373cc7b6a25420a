#include "bench/blocked_signals.hpp"

namespace ferry::bench {

BlockedSignals::BlockedSignals() {
  sigemptyset(&watched_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&watched_, number);
  ::sigprocmask(SIG_BLOCK, &watched_, &before_);
}

BlockedSignals::~BlockedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

int BlockedSignals::wait(std::chrono::milliseconds limit) const {
  const timespec time = {.tv_sec = limit.count() / 1000,
                         .tv_nsec = limit.count() % 1000 * 1'000'000};
  const int number = ::sigtimedwait(&watched_, nullptr, &time);
  return number > 0 ? number : 0;
}

}  // namespace ferry::bench
