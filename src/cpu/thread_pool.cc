#include "cpu/thread_pool.hpp"

#include <algorithm>

namespace ferry::cpu {

ThreadPool::ThreadPool(int num_threads) {
  for (int worker = 1; worker < num_threads; ++worker)
    threads_.emplace_back([this, worker] { run_worker(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::parallel_for(std::int64_t num_items,
                              std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t, int)>& body) {
  if (num_items <= 0) return;
  if (threads_.empty() || num_items <= grain) {
    body(0, num_items, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    num_items_ = num_items;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    num_running_ = static_cast<int>(threads_.size());
    ++round_;
  }
  wake_.notify_all();
  take_pieces(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return num_running_ == 0; });
}

void ThreadPool::take_pieces(int worker) {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= num_items_) return;
    (*body_)(begin, std::min(begin + grain_, num_items_), worker);
  }
}

void ThreadPool::run_worker(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return is_stopping_ || round_ != seen; });
      if (is_stopping_) return;
      seen = round_;
    }
    take_pieces(worker);
    const std::lock_guard lock(mutex_);
    if (--num_running_ == 0) done_.notify_one();
  }
}

}  // namespace ferry::cpu
