#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace ferry {

// Looks a variable up; tests pass their own. The process environment is read only in env.cc.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
[[nodiscard]] Lookup process_environment();

using Variable = std::pair<std::string, std::string>;  // name and value

// What a child is started with: "NAME=value" for every variable of this process, those of `changes`
// in place of its own.
[[nodiscard]] std::vector<std::string> child_environment(std::span<const Variable> changes);

// What FERRY_* variables say. Each field is one row of the table in env.cc, from which parsing,
// `ferry env --explain` and docs/env.md are made.
struct Env {
  std::optional<int> rank;                            // FERRY_RANK
  std::optional<int> size;                            // FERRY_SIZE
  std::string address;                                // FERRY_ADDRESS
  std::optional<int> port;                            // FERRY_PORT
  std::string interface;                              // FERRY_INTERFACE
  std::string secret_file;                            // FERRY_SECRET_FILE
  std::string secret;                                 // FERRY_SECRET; never printed
  bool insecure = false;                              // FERRY_INSECURE
  int nodes = 1;                                      // FERRY_NODES: pretended nodes
  std::chrono::milliseconds arrival_timeout{300000};  // FERRY_TIMEOUT_MS
  std::chrono::milliseconds progress_timeout{10000};  // FERRY_PROGRESS_TIMEOUT_MS
  std::chrono::milliseconds meeting_timeout{300000};  // FERRY_MEETING_TIMEOUT_MS
  std::chrono::milliseconds late_warning{10000};      // FERRY_LATE_WARNING_MS
  LogLevel log_level = LogLevel::kWarn;               // FERRY_LOG
  int num_threads = 0;                                // FERRY_THREADS
  std::string plugin_dir;                             // FERRY_PLUGIN_DIR
  std::optional<int> expand;                          // FERRY_EXPAND
};

// Absent: the default. Malformed: Error naming variable, value and accepted form.
[[nodiscard]] Env parse_env(const Lookup& lookup);

// The environment of this process, parsed once at the first call, which also sets the log level and
// logs the warnings for unknown names. Throws like parse_env, then again at the next call.
[[nodiscard]] const Env& env();

// One line of `ferry env --explain`.
struct EnvLine {
  std::string name;
  std::string value;   // as in force; "(set)" for secrets
  std::string source;  // "default" or "environment"
  std::string fallback;
  std::string help;
};
[[nodiscard]] std::vector<EnvLine> explain_env(const Lookup& lookup);

// docs/env.md, whole.
[[nodiscard]] std::string env_table_markdown();

// Warnings for FERRY_* names that nobody knows, each with the nearest known name.
[[nodiscard]] std::vector<std::string> unknown_env_warnings(
    const std::vector<std::string>& names_in_environment);

}  // namespace ferry
