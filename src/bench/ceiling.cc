#include "bench/ceiling.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/human.hpp"
#include "cpu/copy.hpp"
#include "memory/availability.hpp"
#include "memory/huge_pages.hpp"
#include "memory/shared_mapping.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

enum class CopyKind { kMemcpy, kStreaming };

struct Buffers {
  std::shared_ptr<memory::SharedMapping> from;
  std::shared_ptr<memory::SharedMapping> to;
  std::int64_t row_bytes = 0;

  [[nodiscard]] std::int64_t num_rows() const { return from->bytes() / row_bytes; }
};

std::int64_t choose_buffer_bytes() {
  constexpr std::int64_t kLeast = std::int64_t{256} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t cache = std::max<std::int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  // Both buffers together take at most an eighth of the memory that is free.
  const std::int64_t share = memory::read_availability().available_bytes / 16;
  return std::min(std::clamp(4 * cache, kLeast, kMost), std::max(share, kLeast / 8));
}

std::shared_ptr<memory::SharedMapping> make_buffer(const char* label, std::int64_t bytes) {
  const UniqueFd fd = memory::make_shared_object(label, bytes);
  auto mapping = memory::SharedMapping::open(fd.get(), bytes);
  memory::prefer_huge_pages(fd.get(), mapping->base(), 0, bytes);  // as the arena does
  // Touched before the clock runs: every page is there, and none is the shared page of zeros.
  std::memset(mapping->base(), 1, static_cast<std::size_t>(bytes));
  return mapping;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  // Refused in some containers; the threads then run where the system puts them.
  static_cast<void>(::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set));
}

void copy_rows(const Buffers& buffers, CopyKind kind, std::int64_t begin, std::int64_t end) {
  const auto row_bytes = static_cast<std::size_t>(buffers.row_bytes);
  for (std::int64_t row = begin; row < end; ++row) {
    std::byte* to = buffers.to->base() + row * buffers.row_bytes;
    const std::byte* from = buffers.from->base() + row * buffers.row_bytes;
    if (kind == CopyKind::kMemcpy)
      std::memcpy(to, from, row_bytes);
    else
      cpu::stream_copy(to, from, row_bytes);
  }
  if (kind == CopyKind::kStreaming) cpu::stream_fence();
}

// Seconds of the fastest of `repeats` rounds, each from the common start to the last thread's end.
double time_copy(const Buffers& buffers, CopyKind kind, int num_threads, int repeats) {
  const std::vector<int> cpus = allowed_cpus();
  const std::int64_t num_rows = buffers.num_rows();
  double best = 1e30;
  Clock::time_point started;
  bool is_running = false;
  // Runs when all threads have arrived: it starts a round, or ends one.
  auto on_all_arrived = [&]() noexcept {
    const Clock::time_point now = Clock::now();
    if (is_running) best = std::min(best, std::chrono::duration<double>(now - started).count());
    is_running = !is_running;
    started = Clock::now();
  };
  std::barrier gate(num_threads, on_all_arrived);
  const auto work = [&](int index) {
    pin_to(cpus[static_cast<std::size_t>(index) % cpus.size()]);
    for (int i = 0; i < repeats; ++i) {
      gate.arrive_and_wait();
      copy_rows(buffers, kind, num_rows * index / num_threads,
                num_rows * (index + 1) / num_threads);
      gate.arrive_and_wait();
    }
  };
  std::vector<std::jthread> threads;
  for (int index = 0; index < num_threads; ++index) threads.emplace_back(work, index);
  threads.clear();
  return best;
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::vector<int> thread_counts(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(std::max(most, 1));
  return counts;
}

Ceiling measure_ceiling(const CeilingOptions& options) {
  const std::int64_t wanted =
      options.buffer_bytes > 0 ? options.buffer_bytes : choose_buffer_bytes();
  Buffers buffers;
  buffers.row_bytes = std::clamp<std::int64_t>(options.row_bytes, 64, wanted);
  const std::int64_t bytes = wanted / buffers.row_bytes * buffers.row_bytes;
  const memory::Availability availability = memory::read_availability();
  FERRY_CHECK(2 * bytes <= availability.available_bytes, ErrorCode::kNoResource,
              "the copy ceiling needs {} ({} bytes), but {}", human_bytes(2 * bytes), 2 * bytes,
              memory::describe(availability));
  buffers.from = make_buffer("ferry-ceiling-from", bytes);
  buffers.to = make_buffer("ferry-ceiling-to", bytes);

  Ceiling ceiling;
  ceiling.buffer_bytes = bytes;
  const int most =
      options.max_threads > 0 ? options.max_threads : static_cast<int>(allowed_cpus().size());
  for (const int threads : thread_counts(most)) {
    for (const CopyKind kind : {CopyKind::kMemcpy, CopyKind::kStreaming}) {
      const double seconds = time_copy(buffers, kind, threads, options.repeats);
      const double gbs = 2 * static_cast<double>(bytes) / seconds * 1e-9;
      if (gbs <= ceiling.gbs) continue;
      ceiling.gbs = gbs;
      ceiling.threads = threads;
      ceiling.kind = kind == CopyKind::kMemcpy ? "memcpy" : "streaming stores";
    }
  }
  return ceiling;
}

}  // namespace ferry::bench
