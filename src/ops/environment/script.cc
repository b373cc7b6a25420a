#include "ops/environment/script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

using Kind = EnvironmentLine::Kind;

// Prepends `value` to NAME unless it is in it already.
std::string prepend_line(const std::string& name, const std::string& value) {
  return fmt::format(
      "case \":${{{0}:-}}:\" in *:{1}:*) ;; *) export {0}={1}\"${{{0}:+:${0}}}\" ;; esac", name,
      shell_quoted(value));
}

std::string line_of(const EnvironmentLine& line) {
  switch (line.kind) {
    case Kind::kSet: return fmt::format("export {}={}", line.name, shell_quoted(line.value));
    case Kind::kPrepend: return prepend_line(line.name, line.value);
    case Kind::kPreload:
      return fmt::format("if [ -r {} ]; then {}; fi", shell_quoted(line.value),
                         prepend_line(line.name, line.value));
  }
  return "";
}

// "export NAME=VALUE" lines of a script, quotes taken off and comments left out.
std::map<std::string, std::string> parse_exports(const std::string& text) {
  std::map<std::string, std::string> exports;
  for (const std::string& raw : lines_of(text)) {
    const std::string line = trim(raw);
    if (!line.starts_with("export ")) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    const char quote = value.empty() ? '\0' : value[0];
    if (quote == '"' || quote == '\'') {
      value = value.substr(1, value.find(quote, 1) - 1);
    } else {
      value = value.substr(0, value.find_first_of(" \t;#"));
    }
    exports[trim(line.substr(7, equals - 7))] = value;
  }
  return exports;
}

Finding finding_of(Verdict verdict,
                   const std::string& name,
                   const std::string& seen,
                   const std::string& why) {
  return {.id = "env.script." + name,
          .verdict = verdict,
          .title = name,
          .seen = seen,
          .why = why,
          .fix = verdict == Verdict::kOk ? "" : "write the script anew: ferry env",
          .doc = "docs/first-cluster.md"};
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  constexpr const char* kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@";
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string format_script(const std::vector<EnvironmentLine>& lines, const std::string& host) {
  std::string script = fmt::format(
      "# The environment of a DeepEP stack on {}, written by ferry env. To be sourced; twice does "
      "no\n"
      "# harm. To take it back: ferry env --unset\n",
      escape_controls(host));
  for (const EnvironmentLine& line : lines)
    script += fmt::format("\n# {}\n{}\n", escape_controls(line.why), line_of(line));
  if (lines.empty())
    script +=
        "\n# Nothing applies here: no CUDA toolkit, no NVSHMEM, no DeepEP, no mlx5 device beside a "
        "GPU.\n";
  return script;
}

std::string format_unset(const std::vector<EnvironmentLine>& lines) {
  std::string script = "# Takes back what ferry env sets. To be sourced.\n";
  for (const EnvironmentLine& line : lines) {
    if (line.kind == Kind::kSet) {
      script += fmt::format("unset {}\n", line.name);
      continue;
    }
    // Its entry out of the list, and the variable gone where nothing is left.
    const std::string value = shell_quoted(line.value);
    script += fmt::format(
        "case \":${{{0}:-}}:\" in *:{1}:*)\n"
        "  ferry_env_list=\":${{{0}}}:\"\n"
        "  ferry_env_list=\"${{ferry_env_list%%:{1}:*}}:${{ferry_env_list#*:{1}:}}\"\n"
        "  ferry_env_list=\"${{ferry_env_list#:}}\"; ferry_env_list=\"${{ferry_env_list%:}}\"\n"
        "  if [ -n \"$ferry_env_list\" ]; then export {0}=\"$ferry_env_list\"; else unset {0}; fi\n"
        "  unset ferry_env_list ;;\n"
        "esac\n",
        line.name, value);
  }
  return script;
}

std::vector<Finding> check_script(const std::string& text,
                                  const std::vector<EnvironmentLine>& lines) {
  const std::map<std::string, std::string> exports = parse_exports(text);
  std::vector<Finding> findings;
  for (const EnvironmentLine& line : lines) {
    if (line.kind != Kind::kSet) {
      const bool is_there = contains(text, line.value);
      findings.push_back(finding_of(is_there ? Verdict::kOk : Verdict::kFail, line.name,
                                    (is_there ? "has " : "lacks ") + line.value, line.why));
      continue;
    }
    const auto found = exports.find(line.name);
    if (found == exports.end()) {
      findings.push_back(
          finding_of(Verdict::kFail, line.name, "not set, expected " + line.value, line.why));
    } else if (found->second != line.value) {
      findings.push_back(finding_of(Verdict::kFail, line.name,
                                    fmt::format("{}, expected {}", found->second, line.value),
                                    line.why));
    } else {
      findings.push_back(finding_of(Verdict::kOk, line.name, line.value, line.why));
    }
  }
  for (const auto& [exported, value] : exports) {
    const std::string& name = exported;  // a lambda cannot capture a structured binding everywhere
    const bool is_stack =
        name.starts_with("NVSHMEM_") || name.starts_with("NCCL_") || name.starts_with("DEEP_EP_");
    const bool is_planned = std::any_of(
        lines.begin(), lines.end(), [&](const EnvironmentLine& line) { return line.name == name; });
    if (is_stack && !is_planned)
      findings.push_back(finding_of(Verdict::kWarn, name,
                                    "set to " + value + ", which this host gives no reason for",
                                    "what is set without a reason changes what is measured"));
  }
  return findings;
}

}  // namespace ferry::ops
