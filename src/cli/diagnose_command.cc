#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "ops/diagnose/command.hpp"

namespace ferry::cli {

void add_diagnose_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "diagnose", "Find what went wrong in logs: the earliest cause first, rivals named");
  const auto options = std::make_shared<ops::DiagnoseOptions>();
  command->add_option("log", options->logs,
                      "Logs of one run, of any number of ranks; '-' or none: standard input");
  command->add_option(
      "--facts", options->facts,
      "What `ferry facts` wrote on the host of these logs, to decide between causes");
  command->add_flag("--causes", options->is_causes,
                    "List every cause that can be found, as Markdown");
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback([&invocation, options] {
    invocation.action = [options] { return ops::run_diagnose(*options); };
  });
}

}  // namespace ferry::cli
