#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry::cli {

// Exit codes of every command.
enum ExitCode : int {
  kFine = 0,
  kFailed = 1,    // a check failed, a peer was lost, a deadline passed, something is missing here
  kUsage = 2,     // the command line or another input is wrong
  kInternal = 3,  // a defect
  kStopped = 4,   // stopped on purpose: by a signal, or because a reboot or a yes is needed
};

// The program's command line, and what it turned out to ask for.
struct Invocation {
  std::vector<std::string> arguments;  // argv, the program's name first
  std::function<int()> action;         // set by the parsed subcommand; returns the exit code
};

// The whole command line: every subcommand, none parsed yet. After `app.parse()` the action of
// `invocation` is set; both must outlive it.
void add_commands(CLI::App& app, Invocation& invocation);

// Each adds one subcommand to `app`. A command's file only parses: it fills a plain options struct
// and names the function that does the work. A new command is one file and one line in
// command_line.cc.
void add_bench_command(CLI::App& app, Invocation& invocation);
void add_diagnose_command(CLI::App& app, Invocation& invocation);
void add_doctor_command(CLI::App& app, Invocation& invocation);
void add_env_command(CLI::App& app, Invocation& invocation);
void add_facts_command(CLI::App& app, Invocation& invocation);
void add_nics_command(CLI::App& app, Invocation& invocation);
void add_plan_command(CLI::App& app, Invocation& invocation);
void add_topo_command(CLI::App& app, Invocation& invocation);
void add_image_command(CLI::App& app, Invocation& invocation);
void add_install_command(CLI::App& app, Invocation& invocation);
void add_k8s_command(CLI::App& app, Invocation& invocation);
void add_verify_command(CLI::App& app, Invocation& invocation);
void add_version_command(CLI::App& app, Invocation& invocation);

}  // namespace ferry::cli
