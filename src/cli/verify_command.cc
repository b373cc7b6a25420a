#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/verify/verify.hpp"

namespace ferry::cli {

void add_verify_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "verify", "Prove an installed stack: imports, devices, tests beside published figures");
  const auto options = std::make_shared<ops::VerifyOptions>();
  command->add_option("--stack", options->stack, "What to prove")
      ->check(CLI::IsMember({"deepep", "ferry"}))
      ->capture_default_str();
  command->add_option("--prefix", options->prefix, "Where `ferry install` built it")
      ->capture_default_str();
  command->add_option(
      "--peer", options->peers,
      "The other nodes of a multi-node test; each runs the same with its --node-rank");
  command->add_option("--node-rank", options->node_rank, "This node's number among them")
      ->capture_default_str();
  command->add_option("--address", options->address, "Of node 0; default: this host's name");
  command->add_flag("--list", options->is_listing,
                    "Print the tests' command lines and run nothing");
  add_facts_source(*command, options->source);
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback([&invocation, options] {
    invocation.action = [options] { return ops::run_verify(*options); };
  });
}

}  // namespace ferry::cli
