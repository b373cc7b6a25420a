#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/facts/facts_json.hpp"
#include "ops/finding.hpp"

namespace ferry::cli {

namespace {

struct FactsOptions {
  ops::FactsSource source;
  bool is_json = true;  // always: the option exists because every command has it
};

int run_facts(const FactsOptions& options) {
  fmt::print("{}", ops::print_json(ops::facts_json(ops::load_facts(options.source))));
  return kFine;
}

}  // namespace

void add_facts_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("facts", "Print what this host is, as JSON, to carry elsewhere");
  const auto options = std::make_shared<FactsOptions>();
  add_facts_source(*command, options->source);
  command->add_flag("--json", options->is_json,
                    "Accepted for uniformity: facts are always one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_facts(*options); }; });
}

}  // namespace ferry::cli
