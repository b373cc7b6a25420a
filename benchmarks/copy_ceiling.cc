// How fast this machine copies memory: an independent second opinion on the ceiling that
// `ferry bench` measures in its own run. It shares no code with it. The two must agree within 5 %.
//
//   copy_ceiling [ROW_BYTES [BUFFER_MIB]]
//
// Best of memcpy and streaming stores, over 1, 2, 4, ... all allowed threads, five repeats each,
// sequential rows between two memfd mappings with huge pages where allowed; bytes read and bytes
// written both count. Prints one JSON object.
//
// Beside it two rates that no exchange can beat, however good its copies are: `fan_out_gbs`, every
// row streamed to 4 places (what a dispatch to 4 ranks does to memory), and `gather_gbs`, every row
// the exclusive or of 4 (what a combine does). Where memory reads and writes at different rates
// they differ from the copy's.

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Linux 6.1; older C libraries have no name for it.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kFan = 4;  // targets of a fan-out, sources of a gather

double now_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

char* map_shared(std::size_t bytes) {
  const int fd = memfd_create("copy-ceiling", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    std::perror("copy_ceiling: memfd_create");
    std::exit(1);
  }
  // Aligned to a huge page: a range to choose from, then the object over it.
  char* range = static_cast<char*>(
      mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  range += -reinterpret_cast<std::uintptr_t>(range) % kHugePage;
  void* base = mmap(range, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  close(fd);
  if (base == MAP_FAILED) {
    std::perror("copy_ceiling: mmap");
    std::exit(1);
  }
  for (std::size_t at = 0; at < bytes; at += kHugePage) static_cast<char*>(base)[at] = 1;
  madvise(base, bytes / kHugePage * kHugePage, MADV_COLLAPSE);
  std::memset(base, 1, bytes);
  return static_cast<char*>(base);
}

void copy_streaming(char* to, const char* from, std::size_t bytes) {
#if defined(__x86_64__)
  std::size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

// Goes to all targets by pieces, so that the source is read once.
void fan_out(char* const* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kPiece = 1024;
  for (std::size_t at = 0; at < bytes; at += kPiece)
    for (std::size_t i = 0; i < kFan; ++i)
      copy_streaming(to[i] + at, from + at, std::min(kPiece, bytes - at));
}

void gather(char* to, const char* const* from, std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t at = 0; at + 16 <= bytes; at += 16) {
    __m128i sum = _mm_setzero_si128();
    for (std::size_t i = 0; i < kFan; ++i)
      sum = _mm_xor_si128(sum, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[i] + at)));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), sum);
  }
#else
  for (std::size_t at = 0; at < bytes; ++at) {
    int sum = 0;
    for (std::size_t i = 0; i < kFan; ++i) sum ^= from[i][at];
    to[at] = static_cast<char>(sum);
  }
#endif
}

enum class Kind { kMemcpy, kStreaming, kFanOut, kGather };

// One measurement: its threads start together by a flag and each takes its share of the rows.
struct Round {
  char* to;
  const char* from;
  std::size_t row_bytes;
  std::size_t num_rows;
  Kind kind;
  int num_threads;
  std::atomic<int> num_ready{0};
  std::atomic<bool> is_started{false};
};

// Row `row`; the patterns use quarters of the buffers, `num_rows` rows each.
void copy_row(const Round& round, std::size_t row) {
  const std::size_t at = row * round.row_bytes;
  char* to[kFan];
  const char* from[kFan];
  for (std::size_t i = 0; i < kFan; ++i) {
    to[i] = round.to + i * round.num_rows * round.row_bytes + at;
    from[i] = round.from + i * round.num_rows * round.row_bytes + at;
  }
  switch (round.kind) {
    case Kind::kMemcpy: std::memcpy(round.to + at, round.from + at, round.row_bytes); break;
    case Kind::kStreaming: copy_streaming(round.to + at, round.from + at, round.row_bytes); break;
    case Kind::kFanOut: fan_out(to, round.from + at, round.row_bytes); break;
    case Kind::kGather: gather(round.to + at, from, round.row_bytes); break;
  }
}

struct Worker {
  Round* round;
  int index;
  int cpu;
  double end;
};

void* work(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  Round& round = *worker->round;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(worker->cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  const auto threads = static_cast<std::size_t>(round.num_threads);
  const auto index = static_cast<std::size_t>(worker->index);
  const std::size_t begin = round.num_rows * index / threads;
  const std::size_t end = round.num_rows * (index + 1) / threads;
  round.num_ready.fetch_add(1);
  while (!round.is_started.load()) sched_yield();
  for (std::size_t row = begin; row < end; ++row) copy_row(round, row);
#if defined(__x86_64__)
  _mm_sfence();
#endif
  worker->end = now_seconds();
  return nullptr;
}

double run_round(Round& round, const std::vector<int>& cpus) {
  std::vector<Worker> workers;
  for (int i = 0; i < round.num_threads; ++i)
    workers.push_back({&round, i, cpus[static_cast<std::size_t>(i) % cpus.size()], 0});
  std::vector<pthread_t> threads(workers.size());
  for (std::size_t i = 0; i < workers.size(); ++i)
    if (pthread_create(&threads[i], nullptr, work, &workers[i]) != 0) std::abort();
  while (round.num_ready.load() < round.num_threads) sched_yield();
  const double start = now_seconds();
  round.is_started.store(true);
  double end = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    pthread_join(threads[i], nullptr);
    end = std::max(end, workers[i].end);
  }
  return end - start;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  return cpus;
}

// Four times the last-level cache, within 256 MiB and 1 GiB.
std::size_t default_buffer_bytes() {
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);
  return std::clamp(std::size_t{4} * static_cast<std::size_t>(cache), std::size_t{256} << 20,
                    std::size_t{1} << 30);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t row_bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 14336;
  const std::size_t wanted =
      argc > 2 ? std::strtoull(argv[2], nullptr, 10) << 20 : default_buffer_bytes();
  if (row_bytes == 0 || row_bytes > wanted) {
    std::fprintf(stderr, "usage: copy_ceiling [ROW_BYTES [BUFFER_MIB]]\n");
    return 2;
  }
  const std::size_t bytes = wanted / row_bytes * row_bytes;
  char* from = map_shared(bytes);
  char* to = map_shared(bytes);
  const std::vector<int> cpus = allowed_cpus();
  const int most = static_cast<int>(cpus.size());

  struct Best {
    double gbs = 0;
    int threads = 0;
  };
  std::array<Best, 4> best;
  for (int threads = 1;; threads = std::min(2 * threads, most)) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const Kind kind : {Kind::kMemcpy, Kind::kStreaming, Kind::kFanOut, Kind::kGather}) {
        const bool is_pattern = kind == Kind::kFanOut || kind == Kind::kGather;
        const std::size_t num_rows = bytes / row_bytes / (is_pattern ? kFan : 1);
        Round round{to, from, row_bytes, num_rows, kind, threads};
        const double moved =
            static_cast<double>(num_rows * row_bytes) * (is_pattern ? kFan + 1 : 2);
        const double gbs = 1e-9 * moved / run_round(round, cpus);
        Best& of_kind = best[static_cast<std::size_t>(kind)];
        if (gbs > of_kind.gbs) of_kind = {gbs, threads};
      }
    }
    if (threads == most) break;
  }
  const auto of = [&](Kind kind) { return best[static_cast<std::size_t>(kind)]; };
  const bool is_streaming = of(Kind::kStreaming).gbs > of(Kind::kMemcpy).gbs;
  const Best copy = of(is_streaming ? Kind::kStreaming : Kind::kMemcpy);
  std::printf(
      "{\"gbs\": %.3f, \"threads\": %d, \"kind\": \"%s\", \"buffer_bytes\": %zu, "
      "\"fan_out_gbs\": %.3f, \"gather_gbs\": %.3f}\n",
      copy.gbs, copy.threads, is_streaming ? "streaming stores" : "memcpy", bytes,
      of(Kind::kFanOut).gbs, of(Kind::kGather).gbs);
  return 0;
}
