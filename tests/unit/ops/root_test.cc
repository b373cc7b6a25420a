#include "ops/facts/root.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace ferry::ops {

namespace {

namespace fs = std::filesystem;

class RootTree : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ferry-root-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "tree/sys/a");
    std::ofstream(folder_ / "outside") << "secret";
    std::ofstream(folder_ / "tree/sys/a/value") << " 42\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Root root() const { return Root((folder_ / "tree").string()); }

  fs::path folder_;
};

}  // namespace

TEST_F(RootTree, FollowsAnAbsoluteLinkInsideTheTree) {
  fs::create_symlink("/sys/a", folder_ / "tree/link");

  EXPECT_EQ(root().read_number("/link/value"), Fact<std::int64_t>(42));
  EXPECT_EQ(root().resolve("/link/value"), Fact<std::string>("/sys/a/value"));
}

TEST_F(RootTree, IsNotLeftByALink) {
  fs::create_symlink("../../../../outside", folder_ / "tree/sys/escape");
  fs::create_symlink(folder_ / "outside", folder_ / "tree/absolute");

  EXPECT_TRUE(root().read("/sys/escape").is_absent());
  EXPECT_TRUE(root().read("/absolute").is_absent());
  EXPECT_TRUE(root().read("/../outside").is_absent());
}

TEST_F(RootTree, TellsAbsentFromUnreadable) {
  fs::create_symlink("loop", folder_ / "tree/loop");
  ASSERT_EQ(::mkfifo((folder_ / "tree/fifo").c_str(), 0600), 0);

  EXPECT_TRUE(root().read("/gone").is_absent());
  EXPECT_EQ(root().read("/loop").reason(), "Too many levels of symbolic links");
  EXPECT_EQ(root().read("/fifo").reason(), "not a regular file");
  EXPECT_TRUE(root().list("/gone").is_absent());
}

TEST_F(RootTree, ListsAsPeopleCount) {
  for (const char* name : {"mlx5_10", "mlx5_2", "mlx5_1"})
    fs::create_directory(folder_ / "tree/sys/a" / name);

  EXPECT_THAT(root().names("/sys/a"), testing::ElementsAre("mlx5_1", "mlx5_2", "mlx5_10", "value"));
}

TEST(Root, RefusesAFolderThatIsNone) {
  const auto error = capture_error([] { Root("/no/such/folder"); });

  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "cannot read the root '/no/such/folder': No such file or directory");
}

}  // namespace ferry::ops
