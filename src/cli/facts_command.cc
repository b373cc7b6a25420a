#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/facts/facts_json.hpp"
#include "ops/facts/redact.hpp"
#include "ops/facts/store.hpp"
#include "ops/finding.hpp"
#include "ops/topology/nccl_xml.hpp"

namespace ferry::cli {

namespace {

struct FactsOptions {
  ops::FactsSource source;
  std::string topology_file;
  std::string output;
  bool is_redacted = false;
  bool is_json = true;  // always: the option exists because every command has it
};

int run_facts(const FactsOptions& options) {
  ops::Facts facts = ops::load_facts(options.source);
  if (!options.topology_file.empty()) ops::apply_topology_file(options.topology_file, facts);
  if (options.is_redacted) ops::redact(facts);
  const std::string text = ops::print_json(ops::facts_json(facts));
  if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    ops::store_facts(text, facts, options.output);
  }
  return kFine;
}

}  // namespace

void add_facts_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("facts", "Print what this host is, as JSON, to carry elsewhere");
  const auto options = std::make_shared<FactsOptions>();
  add_facts_source(*command, options->source);
  command
      ->add_option("--topology", options->topology_file,
                   "Take PCI switches from this NCCL topology file (NCCL_TOPO_FILE)")
      ->type_name("FILE");
  command
      ->add_option(
          "--output", options->output,
          "Write to this file, or into this folder one file per host: under mpirun or srun "
          "only the first rank of each host writes")
      ->type_name("PATH");
  command->add_flag("--redact", options->is_redacted,
                    "Leave out host names, addresses, GUIDs and user names");
  command->add_flag("--json", options->is_json,
                    "Accepted for uniformity: facts are always one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_facts(*options); }; });
}

}  // namespace ferry::cli
