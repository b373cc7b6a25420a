#include "memory/availability.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ferry::memory {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A fabricated root.
class AvailabilityTree : public testing::Test {
 protected:
  AvailabilityTree() {
    root_ =
        fs::temp_directory_path() / ("ferry-availability-" + std::to_string(::getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_);
  }
  ~AvailabilityTree() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(AvailabilityTree, TakesMemAvailableWhereThereIsNoLimit) {
  write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n");

  const Availability got = read_availability(root_);

  EXPECT_EQ(got.available_bytes, 2 * kMiB);
  EXPECT_EQ(describe(got), "2.00 MiB available, no cgroup limit");
}

TEST_F(AvailabilityTree, TakesTheTightestLimitOnTheWayToTheRoot) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/memory.max", std::to_string(100 * kMiB));
  write("sys/fs/cgroup/pod/memory.current", std::to_string(90 * kMiB));
  write("sys/fs/cgroup/pod/container/memory.max", std::to_string(200 * kMiB));
  write("sys/fs/cgroup/pod/container/memory.current", std::to_string(10 * kMiB));

  const Availability got = read_availability(root_);

  EXPECT_EQ(got.available_bytes, 10 * kMiB);
  EXPECT_EQ(got.cgroup_limit_bytes, 100 * kMiB);
}

TEST_F(AvailabilityTree, CountsFileCacheThatCanBeDroppedAsAvailable) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", std::to_string(100 * kMiB));
  write("sys/fs/cgroup/memory.current", std::to_string(95 * kMiB));
  write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file " + std::to_string(40 * kMiB) + "\n");

  EXPECT_EQ(read_availability(root_).available_bytes, 45 * kMiB);
}

TEST_F(AvailabilityTree, ReadsVersionOneLimits) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "4:memory:/job\n2:cpu:/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(64 * kMiB));
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(60 * kMiB));
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1");

  EXPECT_EQ(read_availability(root_).available_bytes, 4 * kMiB);
}

TEST_F(AvailabilityTree, LetsTheWordMaxLimitNothing) {
  write("proc/meminfo", "MemAvailable: 1024 kB\n");
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "5\n");

  EXPECT_FALSE(read_availability(root_).cgroup_limit_bytes);
}

TEST_F(AvailabilityTree, LimitsNothingWhereNothingCanBeRead) {
  EXPECT_EQ(read_availability(root_).available_bytes, INT64_MAX);
}

}  // namespace
}  // namespace ferry::memory
