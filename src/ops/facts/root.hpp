#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/facts/fact.hpp"

namespace ferry::ops {

// The file system that facts are read from: a live host ("/") or a folder that stands for one.
// Paths are those of the host, "/proc/version". Links lead where they would lead on that host: an
// absolute one starts again at the root, and none leads out of it.
class Root {
 public:
  explicit Root(std::string folder = "/");

  [[nodiscard]] bool is_live() const noexcept { return folder_ == "/"; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

  // The first 16 MiB of a file; absent if there is none, unknown if it cannot be read.
  [[nodiscard]] Fact<std::string> read(std::string_view path) const;
  // The same, without blanks, line ends and NULs at both ends.
  [[nodiscard]] Fact<std::string> read_line(std::string_view path) const;
  [[nodiscard]] Fact<std::int64_t> read_number(std::string_view path) const;

  // Names in a folder, sorted as people count (mlx5_2 before mlx5_10); absent or unknown as above.
  [[nodiscard]] Fact<std::vector<std::string>> list(std::string_view path) const;
  // The same, and empty where there is none.
  [[nodiscard]] std::vector<std::string> names(std::string_view path) const;

  [[nodiscard]] bool exists(std::string_view path) const;
  [[nodiscard]] bool is_folder(std::string_view path) const;
  [[nodiscard]] bool is_writable(std::string_view path) const;
  [[nodiscard]] Fact<std::int64_t> owner(std::string_view path) const;

  // The path with all links followed, as a path of the host; absent where it leads nowhere.
  [[nodiscard]] Fact<std::string> resolve(std::string_view path) const;
  // Where this machine has the file of that path of the host; links followed. Empty if there is
  // none. For libraries that open a file themselves.
  [[nodiscard]] std::string local_path(std::string_view path) const;

 private:
  std::string folder_;  // "/" or an absolute path without a slash at its end
};

// "mlx5_2" before "mlx5_10": runs of digits compare by value.
[[nodiscard]] bool is_before_naturally(std::string_view a, std::string_view b);

}  // namespace ferry::ops
