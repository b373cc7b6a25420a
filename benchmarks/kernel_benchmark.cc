// The CPU kernels beside memcpy on the same buffers. "cached" works on a few rows again and again;
// "gathered" takes rows from random places of a buffer far larger than the caches, as a pull
// combine does. bytes_per_second counts row bytes read, for copies those written as well.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "cpu/copy.hpp"
#include "cpu/quantize.hpp"
#include "cpu/reduce.hpp"

namespace ferry::cpu {
namespace {

constexpr std::int64_t kHidden = 7168;
constexpr std::size_t kRowBytes = 2 * kHidden;
constexpr std::size_t kNumRows = 32768;  // 448 MiB
constexpr std::size_t kNumCached = 16;

// Touched pages of random finite bf16 numbers, huge ones where the system allows.
class Rows {
 public:
  explicit Rows(std::size_t num_rows) : bytes_(num_rows * kRowBytes) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) std::abort();
    (void)::madvise(memory_, bytes_, MADV_HUGEPAGE);
    std::mt19937 random(1);
    auto* channels = static_cast<std::uint16_t*>(memory_);
    for (std::size_t i = 0; i < bytes_ / 2; i += 2) {
      const auto bits = static_cast<std::uint32_t>(random()) & 0xBFFFBFFF;  // below 2 in magnitude
      std::memcpy(channels + i, &bits, sizeof(bits));
    }
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() { ::munmap(memory_, bytes_); }

  [[nodiscard]] std::byte* row(std::size_t index) const {
    return static_cast<std::byte*>(memory_) + index * kRowBytes;
  }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

Rows& large_source() {
  static Rows rows(kNumRows);
  return rows;
}

Rows& large_target() {
  static Rows rows(kNumRows);
  return rows;
}

// Row numbers in random order.
std::vector<std::uint32_t> shuffled_rows() {
  std::vector<std::uint32_t> order(kNumRows);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  return order;
}

void count_bytes(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_per_iteration));
}

// --- copies ------------------------------------------------------------------------------------

void memcpy_sequential(benchmark::State& state) {
  std::size_t at = 0;
  large_source();  // filled outside the timed loop
  large_target();
  for (auto _ : state) {
    std::memcpy(large_target().row(at), large_source().row(at), kRowBytes);
    at = (at + 1) % kNumRows;
  }
  count_bytes(state, 2 * kRowBytes);
}
BENCHMARK(memcpy_sequential);

void memcpy_gathered(benchmark::State& state) {
  const std::vector<std::uint32_t> order = shuffled_rows();
  std::size_t at = 0;
  for (auto _ : state) {
    std::memcpy(large_target().row(at), large_source().row(order[at]), kRowBytes);
    at = (at + 1) % kNumRows;
  }
  count_bytes(state, 2 * kRowBytes);
}
BENCHMARK(memcpy_gathered);

void stream_copy_sequential(benchmark::State& state) {
  std::size_t at = 0;
  for (auto _ : state) {
    stream_copy(large_target().row(at), large_source().row(at), kRowBytes);
    at = (at + 1) % kNumRows;
  }
  stream_fence();
  count_bytes(state, 2 * kRowBytes);
}
BENCHMARK(stream_copy_sequential);

void stream_copy_gathered(benchmark::State& state) {
  const std::vector<std::uint32_t> order = shuffled_rows();
  std::size_t at = 0;
  for (auto _ : state) {
    stream_copy(large_target().row(at), large_source().row(order[at]), kRowBytes);
    at = (at + 1) % kNumRows;
  }
  stream_fence();
  count_bytes(state, 2 * kRowBytes);
}
BENCHMARK(stream_copy_gathered);

// As dispatch does: one row in order, to places far apart.
void stream_copy_scattered(benchmark::State& state) {
  const std::vector<std::uint32_t> order = shuffled_rows();
  const auto num_destinations = static_cast<std::size_t>(state.range(0));
  std::size_t at = 0;
  for (auto _ : state) {
    void* destinations[8];
    for (std::size_t i = 0; i < num_destinations; ++i) {
      destinations[i] = large_target().row(order[(at + i * 4096) % kNumRows]);
    }
    stream_copy_to_many(destinations, static_cast<int>(num_destinations), large_source().row(at),
                        kRowBytes);
    at = (at + 1) % kNumRows;
  }
  stream_fence();
  count_bytes(state, (1 + num_destinations) * kRowBytes);
}
BENCHMARK(stream_copy_scattered)->Arg(1)->Arg(4)->Arg(8);

// The rate that a sum can reach at most: it reads, and writes almost nothing.
void read_sequential(benchmark::State& state) {
  std::size_t at = 0;
  for (auto _ : state) {
    std::uint64_t sum = 0;
    const std::byte* row = large_source().row(at);
    for (std::size_t i = 0; i < kRowBytes; i += 64) {
      std::uint64_t word = 0;
      std::memcpy(&word, row + i, sizeof(word));
      sum += word;
    }
    benchmark::DoNotOptimize(sum);
    at = (at + 1) % kNumRows;
  }
  count_bytes(state, kRowBytes);
}
BENCHMARK(read_sequential);

void read_gathered(benchmark::State& state) {
  const std::vector<std::uint32_t> order = shuffled_rows();
  std::size_t at = 0;
  for (auto _ : state) {
    std::uint64_t sum = 0;
    const std::byte* row = large_source().row(order[at]);
    for (std::size_t i = 0; i < kRowBytes; i += 64) {
      std::uint64_t word = 0;
      std::memcpy(&word, row + i, sizeof(word));
      sum += word;
    }
    benchmark::DoNotOptimize(sum);
    at = (at + 1) % kNumRows;
  }
  count_bytes(state, kRowBytes);
}
BENCHMARK(read_gathered);

// --- sums --------------------------------------------------------------------------------------

// hidden of the dtype that fills a row of kRowBytes.
SumArgs sum_args(DType dtype, const std::vector<const void*>& rows, void* out) {
  SumArgs args;
  args.dtype = dtype;
  args.hidden = static_cast<std::int64_t>(kRowBytes / dtype_bytes(dtype));
  args.out = out;
  args.rows = rows;
  return args;
}

void sum_cached(benchmark::State& state, DType dtype, bool is_weighted) {
  static Rows cached(kNumCached);
  std::vector<const void*> rows(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = cached.row(i + 1);
  const std::vector<float> weights(rows.size(), 0.125F);
  SumArgs args = sum_args(dtype, rows, cached.row(0));
  args.weights = is_weighted ? weights.data() : nullptr;
  for (auto _ : state) {
    sum_rows(args);
    benchmark::ClobberMemory();
  }
  count_bytes(state, rows.size() * kRowBytes);
}
BENCHMARK_CAPTURE(sum_cached, bf16, DType::kBf16, false)->Arg(1)->Arg(4)->Arg(6)->Arg(8);
BENCHMARK_CAPTURE(sum_cached, bf16_weighted, DType::kBf16, true)->Arg(8);
BENCHMARK_CAPTURE(sum_cached, fp16, DType::kFp16, false)->Arg(8);
BENCHMARK_CAPTURE(sum_cached, fp32, DType::kFp32, false)->Arg(8);

void sum_gathered(benchmark::State& state, DType dtype, bool is_weighted) {
  const std::vector<std::uint32_t> order = shuffled_rows();
  std::vector<const void*> rows(static_cast<std::size_t>(state.range(0)));
  const std::vector<float> weights(rows.size(), 0.125F);
  std::size_t at = 0;
  std::size_t token = 0;
  for (auto _ : state) {
    for (const void*& row : rows) row = large_source().row(order[at++ % kNumRows]);
    SumArgs args = sum_args(dtype, rows, large_target().row(token++ % kNumRows));
    args.weights = is_weighted ? weights.data() : nullptr;
    sum_rows(args);
  }
  count_bytes(state, rows.size() * kRowBytes);
}
BENCHMARK_CAPTURE(sum_gathered, bf16, DType::kBf16, false)->Arg(1)->Arg(4)->Arg(6)->Arg(8);
BENCHMARK_CAPTURE(sum_gathered, bf16_weighted, DType::kBf16, true)->Arg(8);
BENCHMARK_CAPTURE(sum_gathered, fp16, DType::kFp16, false)->Arg(8);
BENCHMARK_CAPTURE(sum_gathered, fp32, DType::kFp32, false)->Arg(8);

// As a pull combine of by_rank reads: every destination returns this rank's rows in token order, so
// that there are as many sequential streams as rows a token.
void sum_streams(benchmark::State& state, DType dtype) {
  std::vector<const void*> rows(static_cast<std::size_t>(state.range(0)));
  const std::size_t rows_per_stream = kNumRows / rows.size();
  std::size_t token = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = large_source().row(i * rows_per_stream + token);
    }
    sum_rows(sum_args(dtype, rows, large_target().row(token)));
    token = (token + 1) % rows_per_stream;
  }
  count_bytes(state, (1 + rows.size()) * kRowBytes);
}
BENCHMARK_CAPTURE(sum_streams, bf16, DType::kBf16)->Arg(1)->Arg(4)->Arg(8);

// --- fp8 ---------------------------------------------------------------------------------------

void quantize_cached(benchmark::State& state, Quantize quantize) {
  static Rows cached(kNumCached);
  std::vector<std::uint8_t> out(kHidden);
  std::vector<float> scales(kHidden / 128);
  for (auto _ : state) {
    quantize_row(quantize, reinterpret_cast<const std::uint16_t*>(cached.row(0)), kHidden,
                 out.data(), scales.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, kRowBytes);
}
BENCHMARK_CAPTURE(quantize_cached, fp8, Quantize::kFp8);
BENCHMARK_CAPTURE(quantize_cached, ue8m0, Quantize::kFp8Ue8m0);

void scale_cached(benchmark::State& state, DType dtype) {
  static Rows cached(kNumCached);
  for (auto _ : state) {
    scale_row(dtype, cached.row(0), cached.row(1), 0.3F,
              static_cast<std::int64_t>(kRowBytes / dtype_bytes(dtype)));
    benchmark::ClobberMemory();
  }
  count_bytes(state, kRowBytes);
}
BENCHMARK_CAPTURE(scale_cached, bf16, DType::kBf16);
BENCHMARK_CAPTURE(scale_cached, fp16, DType::kFp16);

}  // namespace
}  // namespace ferry::cpu
