#include <CLI/CLI.hpp>
#include <string>

#include "cli/command.hpp"
#include "ferry/version.hpp"

namespace ferry::cli {

namespace {

// One line each, so that changes to the list meet rarely.
// clang-format off
constexpr void (*kCommands[])(CLI::App&, Invocation&) = {
    add_bench_command,
    add_diagnose_command,
    add_doctor_command,
    add_env_command,
    add_facts_command,
    add_nics_command,
    add_plan_command,
    add_topo_command,
    add_image_command,
    add_install_command,
    add_k8s_command,
    add_verify_command,
    add_version_command,
};
// clang-format on

}  // namespace

void add_commands(CLI::App& app, Invocation& invocation) {
  app.set_version_flag("--version", std::string("ferry ") + version(), "Print the version");
  app.require_subcommand(1);
  app.footer(
      "Results go to stdout, the rest to stderr.\n"
      "Exit codes: 0 fine, 1 a check failed, a peer was lost or a deadline passed, 2 wrong usage,\n"
      "3 internal, 4 stopped on purpose.");
  for (const auto add_command : kCommands) add_command(app, invocation);
}

}  // namespace ferry::cli
