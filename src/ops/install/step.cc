#include "ops/install/step.hpp"

#include <algorithm>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=+,@%").find(c) != std::string_view::npos;
}

}  // namespace

std::vector<std::string> Identity::prefix_for(bool is_root_step) const {
  if (is_root_step) return is_root ? std::vector<std::string>() : std::vector<std::string>{"sudo"};
  if (is_root && !sudo_user.empty()) return {"sudo", "-u", sudo_user, "-H", "--"};
  return {};
}

std::vector<std::string> command_line(const Step& step, const Identity& identity) {
  std::vector<std::string> line = identity.prefix_for(step.is_root);
  if (!step.environment.empty() || !step.folder.empty()) {
    line.emplace_back("env");
    if (!step.folder.empty()) line.insert(line.end(), {"-C", step.folder});
    for (const auto& [name, value] : step.environment) line.push_back(name + "=" + value);
  }
  line.insert(line.end(), step.argv.begin(), step.argv.end());
  return line;
}

std::string shell_quote(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const Step& step, const Identity& identity) {
  std::vector<std::string> words = command_line(step, identity);
  for (std::string& word : words) word = shell_quote(word);
  std::string line = join(words, " ");
  if (!step.input.empty()) line = "printf '%s' " + shell_quote(step.input) + " | " + line;
  if (!step.expected.empty()) line += " | tee /dev/stderr | grep -qF " + shell_quote(step.expected);
  if (step.may_fail) line += " || true";
  return line;
}

}  // namespace ferry::ops
