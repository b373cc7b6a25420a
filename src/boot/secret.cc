#include "boot/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace ferry::boot {

namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

std::string read_all(int fd, const std::string& path) {
  std::string text(kMaxSecretBytes + 1, '\0');
  std::size_t num_read = 0;
  while (num_read < text.size()) {
    const ssize_t status = ::read(fd, text.data() + num_read, text.size() - num_read);
    if (status < 0 && errno == EINTR) continue;
    FERRY_CHECK(status >= 0, ErrorCode::kInvalidArgument,
                "FERRY_SECRET_FILE='{}' cannot be read: {}", path, errno_text(errno));
    if (status == 0) break;
    num_read += static_cast<std::size_t>(status);
  }
  FERRY_CHECK(num_read <= kMaxSecretBytes, ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' has more than {} bytes", path, kMaxSecretBytes);
  text.resize(num_read);
  return text;
}

// The descriptor is checked, not the path: nothing can change between check and read.
void check_private(int fd, const std::string& path) {
  struct stat status {};
  FERRY_CHECK(::fstat(fd, &status) == 0 && S_ISREG(status.st_mode), ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' is not a regular file", path);
  FERRY_CHECK(status.st_uid == ::geteuid(), ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' belongs to uid {}, expected uid {}", path, status.st_uid,
              ::geteuid());
  FERRY_CHECK((status.st_mode & 077) == 0, ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' has mode {:04o}, expected 0600; try: chmod 600 '{}'", path,
              status.st_mode & 07777, path);
}

}  // namespace

std::string read_secret(const Env& env) {
  if (env.secret_file.empty()) return env.secret;
  const std::string& path = env.secret_file;
  // Not blocking: a pipe or a device in the file's place must not hold us up.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  FERRY_CHECK(fd.is_open(), ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' cannot be opened: {}", path, errno_text(errno));
  check_private(fd.get(), path);
  std::string text = read_all(fd.get(), path);
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  FERRY_CHECK(!text.empty(), ErrorCode::kInvalidArgument,
              "FERRY_SECRET_FILE='{}' is empty; try: {}", path, kMakeSecretAdvice);
  return text;
}

}  // namespace ferry::boot
