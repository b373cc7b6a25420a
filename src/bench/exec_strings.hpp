#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ferry::bench {

// Arguments or environment as exec and posix_spawn take them.
class ExecStrings {
 public:
  explicit ExecStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& text : strings_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  ExecStrings(const ExecStrings&) = delete;
  ExecStrings& operator=(const ExecStrings&) = delete;

  // Valid while this lives.
  [[nodiscard]] char* const* get() const noexcept { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

}  // namespace ferry::bench
