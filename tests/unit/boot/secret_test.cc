#include "boot/secret.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

// A file in a folder of its own, removed at the end.
class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "ferry-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    env_.secret_file = folder_ + "/secret";
  }
  ~SecretFile() override {
    ::unlink(env_.secret_file.c_str());
    ::rmdir(folder_.c_str());
  }

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(env_.secret_file, std::ios::binary) << text;
    ASSERT_EQ(::chmod(env_.secret_file.c_str(), mode), 0);
  }
  [[nodiscard]] std::string error() const {
    return test::error_of([this] { (void)read_secret(env_); });
  }
  [[nodiscard]] std::string quoted() const {
    return "FERRY_SECRET_FILE='" + env_.secret_file + "'";
  }

  std::string folder_;
  Env env_;
};

TEST_F(SecretFile, IsReadWithoutTheWhiteSpaceAtItsEnd) {
  write("hush hush\r\n\n");

  EXPECT_EQ(read_secret(env_), "hush hush");
}

TEST_F(SecretFile, WinsOverTheVariable) {
  write("from the file");
  env_.secret = "from the variable";

  EXPECT_EQ(read_secret(env_), "from the file");
  env_.secret_file.clear();
  EXPECT_EQ(read_secret(env_), "from the variable");
  env_.secret.clear();
  EXPECT_EQ(read_secret(env_), "");
  env_.secret_file = folder_ + "/secret";
}

TEST_F(SecretFile, IsRefusedWhereOthersMayReadOrWriteIt) {
  for (const auto& [mode, text] : {std::pair<mode_t, std::string>{0644, "0644"},
                                   {0640, "0640"},
                                   {0602, "0602"},
                                   {0610, "0610"}}) {
    write("hush", mode);
    EXPECT_EQ(error(), "invalid argument: " + quoted() + " has mode " + text +
                           ", expected 0600; try: chmod 600 '" + env_.secret_file + "'");
  }
  write("hush", 0400);
  EXPECT_EQ(error(), "");
}

TEST_F(SecretFile, IsRefusedWhereItIsAnotherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  write("hush");
  ASSERT_EQ(::chown(env_.secret_file.c_str(), 65534, 65534), 0);

  EXPECT_EQ(error(), "invalid argument: " + quoted() + " belongs to uid 65534, expected uid 0");
}

TEST_F(SecretFile, IsRefusedWhereItIsMissingEmptyHugeOrNoFile) {
  EXPECT_EQ(error(),
            "invalid argument: " + quoted() + " cannot be opened: No such file or directory");
  write("\n");
  EXPECT_EQ(error(),
            "invalid argument: " + quoted() +
                " is empty; try: (umask 077; head -c 32 /dev/urandom | base64 > ferry.secret), "
                "copy the file to every host, FERRY_SECRET_FILE=ferry.secret");
  write(std::string(4097, 'x'));
  EXPECT_EQ(error(), "invalid argument: " + quoted() + " has more than 4096 bytes");
  ::unlink(env_.secret_file.c_str());
  ASSERT_EQ(::mkfifo(env_.secret_file.c_str(), 0600), 0);
  EXPECT_EQ(error(), "invalid argument: " + quoted() + " is not a regular file");
}

}  // namespace
}  // namespace ferry::boot
