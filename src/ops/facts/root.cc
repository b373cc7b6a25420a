#include "ops/facts/root.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/unique_fd.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr std::size_t kMaxReadBytes = std::size_t{16} << 20;
constexpr int kMaxLinks = 40;

// What an errno says of a fact: not there, or not to be seen.
template <typename T>
Fact<T> missing(int error) {
  if (error == ENOENT || error == ENOTDIR) return Fact<T>::absent();
  return Fact<T>::unknown(errno_text(error));
}

struct Followed {
  std::string path;  // of the host, without links; "" with `error` set
  int error = 0;
};

// Walks `path` below `folder` component by component, so that no link can lead out of it.
Followed follow(const std::string& folder, std::string_view path) {
  std::vector<std::string> pending = split(path, '/');
  std::reverse(pending.begin(), pending.end());
  std::vector<std::string> done;
  int num_links = 0;
  while (!pending.empty()) {
    const std::string name = std::move(pending.back());
    pending.pop_back();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      if (!done.empty()) done.pop_back();
      continue;
    }
    done.push_back(name);
    const std::string here = folder + "/" + join(done, "/");
    struct stat status {};
    if (::lstat(here.c_str(), &status) != 0) return {"", errno};
    if (!S_ISLNK(status.st_mode)) continue;

    if (++num_links > kMaxLinks) return {"", ELOOP};
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(here.c_str(), target.data(), target.size());
    if (length < 0) return {"", errno};
    done.pop_back();
    if (target[0] == '/') done.clear();
    std::vector<std::string> parts =
        split(std::string_view(target.data(), static_cast<std::size_t>(length)), '/');
    pending.insert(pending.end(), parts.rbegin(), parts.rend());
  }
  return {"/" + join(done, "/"), 0};
}

// On a live host the kernel follows links itself: /proc has some that no walk can follow.
Followed follow_live(std::string_view path) {
  const std::unique_ptr<char, decltype(&std::free)> real(
      ::realpath(std::string(path).c_str(), nullptr), &std::free);
  if (real == nullptr) return {"", errno};
  return {real.get(), 0};
}

}  // namespace

Root::Root(std::string folder) : folder_(std::move(folder)) {
  const Followed real = follow_live(folder_);
  FERRY_CHECK(real.error == 0, ErrorCode::kInvalidArgument, "cannot read the root '{}': {}",
              folder_, errno_text(real.error));
  struct stat status {};
  FERRY_CHECK(::stat(real.path.c_str(), &status) == 0 && S_ISDIR(status.st_mode),
              ErrorCode::kInvalidArgument, "the root '{}' is not a folder", folder_);
  folder_ = real.path;
}

std::string Root::local_path(std::string_view path) const {
  if (is_live()) return follow_live(path).path;
  const Followed found = follow(folder_, path);
  return found.error == 0 ? folder_ + found.path : std::string();
}

Fact<std::string> Root::resolve(std::string_view path) const {
  const Followed found = is_live() ? follow_live(path) : follow(folder_, path);
  if (found.error != 0) return missing<std::string>(found.error);
  return found.path;
}

Fact<std::string> Root::read(std::string_view path) const {
  const Fact<std::string> real = resolve(path);
  if (!real.is_known()) return real;
  const std::string local = is_live() ? std::string(path) : folder_ + real.value();
  // Not blocking: a FIFO or a terminal that stands where a file is expected must not hold us.
  const UniqueFd file(::open(local.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return missing<std::string>(errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return missing<std::string>(errno);
  if (!S_ISREG(status.st_mode)) return Fact<std::string>::unknown("not a regular file");

  std::string text;
  std::array<char, 1 << 16> block{};
  while (text.size() < kMaxReadBytes) {
    const ssize_t length = ::read(file.get(), block.data(), block.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return Fact<std::string>::unknown(errno_text(errno));
    if (length == 0) break;
    text.append(block.data(), static_cast<std::size_t>(length));
  }
  return text;
}

Fact<std::string> Root::read_line(std::string_view path) const {
  const Fact<std::string> text = read(path);
  return text.is_known() ? Fact<std::string>(trim(text.value())) : text;
}

Fact<std::int64_t> Root::read_number(std::string_view path) const {
  const Fact<std::string> text = read_line(path);
  if (text.is_absent()) return Fact<std::int64_t>::absent();
  if (text.is_unknown()) return Fact<std::int64_t>::unknown(text.reason());
  const auto number = parse_whole(text.value());
  if (!number) return Fact<std::int64_t>::unknown(std::string(path) + " holds no number");
  return *number;
}

Fact<std::vector<std::string>> Root::list(std::string_view path) const {
  using Names = std::vector<std::string>;
  const Fact<std::string> real = resolve(path);
  if (real.is_absent()) return Fact<Names>::absent();
  if (real.is_unknown()) return Fact<Names>::unknown(real.reason());
  const std::string local = is_live() ? real.value() : folder_ + real.value();
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(local.c_str()), &::closedir);
  if (folder == nullptr) return missing<Names>(errno);
  Names found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
  }
  std::sort(found.begin(), found.end(), is_before_naturally);
  return found;
}

std::vector<std::string> Root::names(std::string_view path) const {
  return list(path).value_or({});
}

bool Root::exists(std::string_view path) const { return resolve(path).is_known(); }

bool Root::is_folder(std::string_view path) const {
  struct stat status {};
  const std::string local = local_path(path);
  return !local.empty() && ::stat(local.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool Root::is_writable(std::string_view path) const {
  const std::string local = local_path(path);
  return !local.empty() && ::access(local.c_str(), W_OK) == 0;
}

Fact<std::int64_t> Root::owner(std::string_view path) const {
  const Fact<std::string> real = resolve(path);
  if (real.is_absent()) return Fact<std::int64_t>::absent();
  struct stat status {};
  if (real.is_unknown() || ::stat(local_path(path).c_str(), &status) != 0)
    return Fact<std::int64_t>::unknown(real.is_unknown() ? real.reason() : errno_text(errno));
  return static_cast<std::int64_t>(status.st_uid);
}

bool is_before_naturally(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto number_at = [&](std::string_view text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view left = number_at(a, i);
      const std::string_view right = number_at(b, j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  const bool is_a_left = i < a.size();
  const bool is_b_left = j < b.size();
  return is_a_left == is_b_left ? a < b : is_b_left;
}

}  // namespace ferry::ops
