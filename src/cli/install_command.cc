#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/install/command.hpp"

namespace ferry::cli {

namespace {

void add_what(CLI::App& command, ops::InstallOptions& options) {
  command.add_option("--stack", options.stack, "What to install")
      ->check(CLI::IsMember({"deepep", "ferry"}))
      ->capture_default_str();
  command.add_option("--target", options.target, "Kind of host")
      ->check(CLI::IsMember({"bare-metal", "gke-cos"}))
      ->capture_default_str();
  command.add_option("--prefix", options.prefix, "Where everything is built")
      ->check([](const std::string& path) {
        return path.starts_with('/') && path.size() > 1 ? ""
                                                        : "'" + path + "' is not an absolute path";
      })
      ->capture_default_str();
  command.add_option("--nic-handler", options.nic_handler, "Who rings the NIC's doorbell")
      ->check(CLI::IsMember({"gpu", "cpu"}))
      ->capture_default_str();
  command.add_option("--nvshmem", options.nvshmem, "Where NVSHMEM comes from")
      ->check(CLI::IsMember({"source", "archive", "wheel", "deb", "conda"}))
      ->capture_default_str();
  command.add_option("--arch", options.arch,
                     "GPU architecture, such as 10.0; default: that of the GPUs");
  command.add_option("--source", options.source,
                     "FerryEP's source tree; default: the working folder");
  command.add_flag(
      "--system-python", options.is_system_python,
      "Install into the system's Python (--break-system-packages), not into PREFIX/venv");
  command.add_flag("--switch-cuda", options.switches_cuda,
                   "Lead an existing /usr/local/cuda of another version to 12.9");
}

void add_how(CLI::App& command, ops::InstallOptions& options) {
  command.add_option("--only", options.only, "Phases, by number or name");
  command.add_option("--from", options.from, "First phase, by number or name");
  command.add_flag("--apply", options.is_applied, "Run the plan; without it nothing is changed");
  command.add_flag("--resume", options.is_resumed, "Go on where an earlier run stopped");
  command.add_flag("--reboot", options.may_reboot, "Reboot where one is due, instead of stopping");
  command.add_flag("--accept-unpinned", options.is_unpinned_accepted,
                   "Fetch also what has no checksum, commit or fingerprint in the table");
}

}  // namespace

void add_install_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "install", "The phases that make this host run a stack: a plan, and with --apply the run");
  const auto install = std::make_shared<ops::InstallCommand>();
  add_what(*command, install->options);
  add_how(*command, install->options);
  add_facts_source(*command, install->source);
  command->add_flag("--script", install->is_script, "Print the plan as a shell script");
  command->add_flag("--json", install->is_json, "Print the plan as one JSON object");
  command->callback([&invocation, install] {
    invocation.action = [install] { return ops::run_install(*install); };
  });
}

}  // namespace ferry::cli
