#include "cpu/copy.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace ferry::cpu {
namespace {

constexpr std::byte kCanary{0xEE};
constexpr std::size_t kMargin = 256;

std::vector<std::byte> pattern(std::size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (std::size_t i = 0; i < num_bytes; ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251) % 255);
  }
  return bytes;
}

// Room for `num_bytes` at any offset below 64 from a cache line, between canaries.
class Target {
 public:
  Target(std::size_t num_bytes, std::size_t line_offset)
      : num_bytes_(num_bytes), storage_(num_bytes + 2 * kMargin, kCanary) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + 64;
    begin_ = 64 + (64 - address % 64) % 64 + line_offset;
  }

  [[nodiscard]] std::byte* begin() { return storage_.data() + begin_; }

  void expect(std::span<const std::byte> bytes) const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool is_inside = i >= begin_ && i < begin_ + num_bytes_;
      ASSERT_EQ(storage_[i], is_inside ? bytes[i - begin_] : kCanary)
          << "byte " << static_cast<std::int64_t>(i) - static_cast<std::int64_t>(begin_) << " of "
          << num_bytes_;
    }
  }

 private:
  std::size_t num_bytes_;
  std::vector<std::byte> storage_;
  std::size_t begin_;
};

TEST(StreamCopy, CopiesEveryLengthAtEveryAlignmentAndNothingElse) {
  const std::vector<std::byte> source = pattern(2048);
  for (const std::size_t num_bytes :
       {1, 2, 15, 16, 63, 64, 65, 127, 255, 256, 257, 300, 319, 320, 511, 512, 1000, 1024}) {
    for (std::size_t line_offset = 0; line_offset < 64; ++line_offset) {
      for (const std::size_t source_offset : {0, 1, 2, 8, 16, 33}) {
        Target target(num_bytes, line_offset);

        stream_copy(target.begin(), source.data() + source_offset, num_bytes);

        stream_fence();
        SCOPED_TRACE(testing::Message()
                     << "target +" << line_offset << " source +" << source_offset);
        target.expect(std::span(source).subspan(source_offset, num_bytes));
      }
    }
  }
}

TEST(StreamCopy, CopiesNothingBetweenNullPointers) {
  stream_copy(nullptr, nullptr, 0);
  stream_copy_to_many(nullptr, 0, nullptr, 0);
}

TEST(StreamCopyToMany, CopiesTheRowToEveryPlace) {
  for (const std::size_t num_bytes : {0, 16, 272, 8176, 8192, 8208, 14336, 28672, 100000}) {
    const std::vector<std::byte> source = pattern(num_bytes + 16);
    for (const std::size_t num_targets : {1, 2, 3, 8, 32}) {
      std::vector<Target> targets;
      std::vector<void*> destinations;
      for (std::size_t i = 0; i < num_targets; ++i) targets.emplace_back(num_bytes, i * 16 % 64);
      for (Target& target : targets) destinations.push_back(target.begin());

      stream_copy_to_many(destinations.data(), static_cast<int>(num_targets), source.data() + 8,
                          num_bytes);

      stream_fence();
      for (const Target& target : targets) target.expect(std::span(source).subspan(8, num_bytes));
    }
  }
}

TEST(StreamCopyToMany, LeavesTargetsAloneWhenThereAreNone) {
  const std::vector<std::byte> source = pattern(1024);
  stream_copy_to_many(nullptr, 0, source.data(), source.size());
}

// False when the counter is still below `value` after a minute.
bool reaches(const std::atomic<std::uint32_t>& counter, std::uint32_t value) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (counter.load(std::memory_order_acquire) < value) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(StreamFence, MakesTheRowVisibleToWhoeverAcquiresTheLaterStore) {
  constexpr std::uint32_t kRounds = 200;
  constexpr std::size_t kWords = 4096;
  std::vector<std::uint32_t> target(kWords, 0);
  std::atomic<std::uint32_t> written{0};
  std::atomic<std::uint32_t> read{0};
  std::uint32_t num_wrong = 0;
  std::thread reader([&] {
    for (std::uint32_t round = 1; round <= kRounds && reaches(written, round); ++round) {
      for (const std::uint32_t word : target) num_wrong += word == round ? 0 : 1;
      read.store(round, std::memory_order_release);
    }
  });

  for (std::uint32_t round = 1; round <= kRounds && reaches(read, round - 1); ++round) {
    const std::vector<std::uint32_t> source(kWords, round);
    stream_copy(target.data(), source.data(), kWords * sizeof(std::uint32_t));
    stream_fence();
    written.store(round, std::memory_order_release);
  }
  reader.join();

  EXPECT_EQ(read.load(), kRounds);
  EXPECT_EQ(num_wrong, 0U);
}

}  // namespace
}  // namespace ferry::cpu
