#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ferry::cpu {

// The threads of one rank. The calling thread is worker 0; with one thread nothing is started.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  [[nodiscard]] int num_threads() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  // Calls body(begin, end, worker) for pieces of [0, num_items) of at most `grain` items, taken
  // dynamically; returns when all are done. `body` must not throw.
  void parallel_for(std::int64_t num_items,
                    std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t, int)>& body);

 private:
  void run_worker(int worker);
  void take_pieces(int worker);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::uint64_t round_ = 0;   // guarded by mutex_
  int num_running_ = 0;       // guarded by mutex_
  bool is_stopping_ = false;  // guarded by mutex_
  const std::function<void(std::int64_t, std::int64_t, int)>* body_ = nullptr;
  std::int64_t num_items_ = 0;
  std::int64_t grain_ = 1;
  std::atomic<std::int64_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace ferry::cpu
