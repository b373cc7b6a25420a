#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ferry/version.hpp"
#include "ops/environment/script.hpp"
#include "ops/facts/root.hpp"

namespace ferry::cli {

namespace {

struct EnvOptions {
  ops::FactsSource source;
  std::string checked_file;
  bool is_explained = false;
  bool is_unset = false;
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

std::string script_json(const std::vector<ops::EnvironmentLine>& lines, const std::string& host) {
  nlohmann::ordered_json json = ops::json_preamble("ferry.env-script/1", host);
  json["variables"] = nlohmann::ordered_json::array();
  for (const ops::EnvironmentLine& line : lines)
    json["variables"].push_back({{"name", line.name},
                                 {"value", line.value},
                                 {"is_prepended", line.kind != ops::EnvironmentLine::Kind::kSet},
                                 {"why", line.why}});
  return ops::print_json(json);
}

int check_file(const EnvOptions& options,
               const std::vector<ops::EnvironmentLine>& lines,
               const std::string& host) {
  const std::string path = std::filesystem::absolute(options.checked_file).string();
  const ops::Fact<std::string> text = ops::Root().read(path);
  FERRY_CHECK(text.is_known(), ErrorCode::kInvalidArgument, "cannot read the script '{}': {}",
              options.checked_file, text.is_absent() ? "no such file" : text.reason());
  const std::vector<ops::Finding> findings = ops::check_script(text.value(), lines);
  fmt::print("{}", options.is_json
                       ? ops::print_json(ops::findings_json(findings, "ferry.env-check/1", host))
                       : ops::format_findings(findings, {}));
  return ops::has_failure(findings) ? kFailed : kFine;
}

int run_script(const EnvOptions& options) {
  const ops::Facts facts = ops::load_facts(options.source);
  const std::vector<ops::EnvironmentLine> lines = ops::plan_environment(facts);
  if (!options.checked_file.empty()) return check_file(options, lines, facts.host.name);
  if (options.is_unset) {
    fmt::print("{}", ops::format_unset(lines));
  } else {
    fmt::print("{}", options.is_json ? script_json(lines, facts.host.name)
                                     : ops::format_script(lines, facts.host.name));
  }
  return kFine;
}

int run_env(const EnvOptions& options) {
  if (!options.is_explained) return run_script(options);
  const std::vector<EnvLine> lines = explain_env(process_environment());
  fmt::print("{}", options.is_json ? format_json(lines) : format_table(lines));
  return kFine;
}

}  // namespace

void add_env_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "env", "The environment script of a DeepEP stack on this host, or FerryEP's own variables");
  const auto options = std::make_shared<EnvOptions>();
  add_facts_source(*command, options->source);
  command->add_flag("--explain", options->is_explained,
                    "List every variable that FerryEP reads, its value and where it came from");
  command->add_flag("--unset", options->is_unset, "Print the script that takes it all back");
  command
      ->add_option("--check", options->checked_file,
                   "Compare an existing script; exit 1 if it differs")
      ->type_name("FILE");
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_env(*options); }; });
}

}  // namespace ferry::cli
