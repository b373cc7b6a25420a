#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/error.hpp"
#include "cli/command.hpp"
#include "ferry/version.hpp"

namespace ferry::cli {

namespace {

struct EnvOptions {
  bool is_explained = false;
  bool is_json = false;
};

std::string format_json(const std::vector<EnvLine>& lines) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::array();
  for (const EnvLine& line : lines)
    variables.push_back({{"name", line.name},
                         {"value", line.value},
                         {"source", line.source},
                         {"default", line.fallback},
                         {"help", line.help}});
  char host[256] = {};
  static_cast<void>(::gethostname(host, sizeof(host) - 1));
  const nlohmann::ordered_json json = {{"schema", "ferry.env/1"},
                                       {"ferry_version", version()},
                                       {"host", host},
                                       {"variables", variables}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string format_table(const std::vector<EnvLine>& lines) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const EnvLine& line : lines) {
    name_width = std::max(name_width, line.name.size());
    value_width = std::max(value_width, std::min<std::size_t>(line.value.size(), 32));
  }
  std::string text;
  for (const EnvLine& line : lines)
    text += fmt::format("{:<{}}  {:<{}}  {:<11}  {}\n", line.name, name_width,
                        line.value.empty() ? "-" : line.value, value_width, line.source, line.help);
  return text;
}

int run_env(const EnvOptions& options) {
  FERRY_CHECK(options.is_explained, ErrorCode::kUnavailable,
              "ferry env writes no script yet; try: ferry env --explain");
  const std::vector<EnvLine> lines = explain_env(process_environment());
  fmt::print("{}", options.is_json ? format_json(lines) : format_table(lines));
  return kFine;
}

}  // namespace

void add_env_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("env", "The environment variables that FerryEP reads");
  const auto options = std::make_shared<EnvOptions>();
  command->add_flag("--explain", options->is_explained,
                    "List every variable, its value and where it came from");
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_env(*options); }; });
}

}  // namespace ferry::cli
