#include "memory/shared_mapping.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"

namespace ferry::memory {
namespace {

TEST(SharedMapping, SharesOneMappingPerObjectInAProcess) {
  const UniqueFd fd = make_shared_object("ferry-test", 8192);
  const UniqueFd other(::dup(fd.get()));

  const auto first = SharedMapping::open(fd.get(), 8192);
  const auto second = SharedMapping::open(other.get(), 8192);

  EXPECT_EQ(first->base(), second->base());
}

TEST(SharedMapping, MapsAnObjectAgainAfterTheLastUseEnded) {
  const UniqueFd fd = make_shared_object("ferry-test", 4096);
  SharedMapping::open(fd.get(), 4096)->base()[7] = std::byte{42};

  EXPECT_EQ(SharedMapping::open(fd.get(), 4096)->base()[7], std::byte{42});
}

TEST(SharedMapping, KeepsItsSizeWhateverAPeerTries) {
  const UniqueFd fd = make_shared_object("ferry-test", 8192);

  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd.get(), 1 << 20), -1);
}

TEST(SharedMapping, IsBornWithoutPages) {
  const UniqueFd fd = make_shared_object("ferry-test", std::int64_t{1} << 40);

  struct stat status {};
  ASSERT_EQ(::fstat(fd.get(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST(SharedMapping, RefusesAnObjectOfAnotherSize) {
  const UniqueFd fd = make_shared_object("ferry-test", 4096);

  try {
    (void)SharedMapping::open(fd.get(), 8192);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "a peer's shared memory has 4096 bytes, expected 8192");
  }
}

TEST(SharedMapping, RefusesAnObjectThatCanShrink) {
  char path[] = "/tmp/ferry-mapping-XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ASSERT_TRUE(file.is_open());
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);

  EXPECT_THROW((void)SharedMapping::open(file.get(), 4096), Error);
}

}  // namespace
}  // namespace ferry::memory
