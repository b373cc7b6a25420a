#include "memory/huge_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "memory/shared_mapping.hpp"

namespace ferry::memory {
namespace {

// Bytes of the mapping at `base` that this process maps by huge pages, from its memory map.
std::int64_t huge_bytes(const std::byte* base) {
  std::ostringstream start;
  start << std::hex << reinterpret_cast<std::uintptr_t>(base) << '-';
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) is_inside = line.starts_with(start.str());
    if (is_inside && line.starts_with("ShmemPmdMapped:")) return std::stoll(line.substr(15)) * 1024;
  }
  return 0;
}

class HugePages : public testing::Test {
 protected:
  static constexpr std::int64_t kBytes = 4 * kHugePageBytes;

  UniqueFd fd_ = make_shared_object("ferry-test", kBytes);
  std::shared_ptr<SharedMapping> mapping_ = SharedMapping::open(fd_.get(), kBytes);
};

TEST_F(HugePages, CanBeMappedBecauseLargeMappingsAreAligned) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping_->base()) % kHugePageBytes, 0U);
}

TEST_F(HugePages, KeepWhatThePagesHold) {
  mapping_->base()[kHugePageBytes + 12345] = std::byte{42};

  prefer_huge_pages(fd_.get(), mapping_->base(), 0, kBytes);

  EXPECT_EQ(mapping_->base()[kHugePageBytes + 12345], std::byte{42});
  EXPECT_EQ(mapping_->base()[kHugePageBytes + 12346], std::byte{0});
  EXPECT_EQ(mapping_->base()[0], std::byte{0});
}

TEST_F(HugePages, BackWholeBlocksOnly) {
  prefer_huge_pages(fd_.get(), mapping_->base(), 4096, 3 * kHugePageBytes);

  const std::int64_t huge = huge_bytes(mapping_->base());
  if (huge == 0) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
  EXPECT_EQ(huge, 2 * kHugePageBytes);
}

}  // namespace
}  // namespace ferry::memory
