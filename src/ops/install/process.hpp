#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ferry::ops {

// A command to run in our working folder, and how.
struct ProcessRequest {
  std::vector<std::string> argv{};        // the program is looked for on PATH
  std::string input{};                    // its standard input
  std::chrono::milliseconds deadline{0};  // from its start; 0: none
  // Receives standard output and error as they come; may be empty.
  std::function<void(std::string_view)> output{};
};

struct ProcessResult {
  int exit_code = -1;    // -1: it did not exit by itself
  int signal = 0;        // that ended it
  bool is_late = false;  // ended by the deadline
  std::string output;    // the last 64 KiB
  [[nodiscard]] bool is_fine() const noexcept { return exit_code == 0; }
  // "exit code 3", "killed by signal 9", "no end within 600 s".
  [[nodiscard]] std::string words() const;
};

// Runs a command to its end or its deadline; it dies with us. Throws kSystem if it cannot be
// started at all; a program that is not there is exit code 127.
[[nodiscard]] ProcessResult run_process(const ProcessRequest& request);

}  // namespace ferry::ops
