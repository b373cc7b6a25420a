#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/checks/doctor.hpp"

namespace ferry::cli {

namespace {

struct DoctorArguments {
  ops::FactsSource source;
  ops::DoctorOptions options;
  std::string stack;
  bool is_json = false;
  bool is_complete = false;
};

int run_doctor(DoctorArguments arguments) {
  arguments.options.for_deepep = arguments.stack != "ferry";
  arguments.options.for_ferry = arguments.stack != "deepep";
  const std::vector<ops::Facts> hosts = ops::load_all_facts(arguments.source);
  const std::vector<ops::Finding> findings = hosts.size() == 1
                                                 ? ops::judge_host(hosts.front(), arguments.options)
                                                 : ops::judge_hosts(hosts, arguments.options);
  if (arguments.is_json) {
    const std::string host = hosts.size() == 1 ? hosts.front().host.name : "";
    fmt::print("{}", ops::print_json(ops::findings_json(findings, "ferry.doctor/1", host)));
  } else {
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    fmt::print("{}", ops::format_findings(findings, {.is_complete = arguments.is_complete,
                                                     .is_colored = is_terminal}));
  }
  return ops::has_failure(findings) ? kFailed : kFine;
}

}  // namespace

void add_doctor_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("doctor", "Judge this host, or compare several; exit 1 if a check fails");
  const auto arguments = std::make_shared<DoctorArguments>();
  add_facts_source(*command, arguments->source);
  command->add_option("--for", arguments->stack, "Only what concerns one stack")
      ->check(CLI::IsMember({"deepep", "ferry"}));
  command->add_flag("--multi-node", arguments->options.is_multi_node,
                    "The job spans hosts: judge what only the network needs harder");
  command
      ->add_option("--only", arguments->options.only,
                   "Run one check, or all whose id begins so (docs/checks.md); repeatable")
      ->type_name("CHECK")
      ->allow_extra_args(false);
  command->add_flag("--all", arguments->is_complete, "Also show what is fine");
  command->add_flag("--json", arguments->is_json, "Print one JSON object");
  command->callback([&invocation, arguments] {
    invocation.action = [arguments] { return run_doctor(*arguments); };
  });
}

}  // namespace ferry::cli
