#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "support/spawn.hpp"

namespace ferry::support {
namespace {

// Ends the program when it is not destroyed within the limit: a thread that hangs cannot be stopped
// otherwise, and a message with the name of the test is worth more than a killed program.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit)
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, limit, [this] { return is_over_; })) return;
          std::fprintf(stderr, "thread ranks still run after %lld s\n",
                       static_cast<long long>(limit.count()));
          std::abort();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace

Outcome attempt(const std::function<void()>& call) {
  Outcome outcome;
  const auto begin = Clock::now();
  try {
    call();
  } catch (const Error& error) {
    outcome.failed = true;
    outcome.code = error.code();
    outcome.message = error.what();
  }
  outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  return outcome;
}

GroupConfig patient_config() {
  GroupConfig config;
  config.meeting_timeout = std::chrono::seconds(30);
  config.arrival_timeout = std::chrono::seconds(30);
  config.progress_timeout = std::chrono::seconds(30);
  return config;
}

void run_ranks(int num_ranks,
               const std::function<void(Group)>& body,
               const GroupConfig& config,
               std::chrono::seconds limit) {
  const Watchdog watchdog(limit);
  Group::run_threads(num_ranks, body, config);
}

}  // namespace ferry::support
