#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "ops/nics/counters.hpp"

namespace ferry::cli {

namespace {

struct NicsOptions {
  std::string root = "/";
  double interval_s = 1;
  int num_rounds = 0;  // 0: until interrupted
  bool is_watching = false;
  bool is_json = false;
  bool is_around = false;
  std::vector<std::string> command;
};

nlohmann::ordered_json object_of(const std::vector<ops::PortBytes>& ports, double seconds) {
  nlohmann::ordered_json json = ops::json_preamble("ferry.nics/1", ops::this_host());
  json["ports"] = ops::ports_json(ports, seconds);
  return json;
}

void show(const NicsOptions& options, const std::vector<ops::PortBytes>& ports, double seconds) {
  fmt::print("{}", options.is_json ? ops::print_json(object_of(ports, seconds))
                                   : ops::format_ports(ports, seconds));
  std::fflush(stdout);
}

// Rates, one round after another, from the time that really passed between two readings.
int watch(const NicsOptions& options, const ops::Root& root) {
  using Clock = std::chrono::steady_clock;
  std::vector<ops::PortBytes> before = ops::read_port_bytes(root);
  Clock::time_point then = Clock::now();
  for (int round = 0; options.num_rounds == 0 || round < options.num_rounds; ++round) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
    const std::vector<ops::PortBytes> after = ops::read_port_bytes(root);
    const Clock::time_point now = Clock::now();
    if (round > 0 && !options.is_json) fmt::print("\n");
    show(options, ops::difference(before, after),
         std::chrono::duration<double>(now - then).count());
    before = after;
    then = now;
  }
  return kFine;
}

int run_around(const NicsOptions& options, const ops::Root& root) {
  const std::vector<ops::PortBytes> before = ops::read_port_bytes(root);
  const int code = ops::run_program(options.command);
  const std::vector<ops::PortBytes> moved = ops::difference(before, ops::read_port_bytes(root));
  const ops::Finding finding = ops::judge_moved(moved);
  if (options.is_json) {
    nlohmann::ordered_json json = ops::findings_json({finding}, "ferry.nics/1", ops::this_host());
    json["ports"] = ops::ports_json(moved, 0);
    json["command_exit_code"] = code;
    fmt::print("{}", ops::print_json(json));
  } else {
    fmt::print("{}{}", ops::format_ports(moved, 0),
               ops::format_findings({finding}, {.is_complete = true}));
    if (code != 0) fmt::print(stderr, "ferry: the command ended with {}\n", code);
  }
  return code != 0 || finding.verdict == ops::Verdict::kFail ? kFailed : kFine;
}

int run_nics(const NicsOptions& options) {
  const ops::Root root(options.root);
  FERRY_CHECK(!options.is_around || !options.command.empty(), ErrorCode::kInvalidArgument,
              "--around needs a command to run between two readings");
  FERRY_CHECK(options.is_around || options.command.empty(), ErrorCode::kInvalidArgument,
              "'{}' is no option; to run it between two readings put --around before it",
              fmt::join(options.command, " "));
  if (options.is_around) return run_around(options, root);
  if (options.is_watching) return watch(options, root);
  show(options, ops::read_port_bytes(root), 0);
  return kFine;
}

}  // namespace

void add_nics_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("nics", "What each RDMA port carried, now or around a command");
  const auto options = std::make_shared<NicsOptions>();
  command->add_option("--root", options->root, "Read the host whose files lie below this folder")
      ->type_name("DIR");
  command->add_flag("--watch", options->is_watching, "Show rates until interrupted");
  command->add_option("--interval", options->interval_s, "Seconds between two rounds of --watch")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("--rounds", options->num_rounds, "End --watch after so many rounds")
      ->check(CLI::Range(1, 1000000));
  command->add_flag("--around", options->is_around,
                    "Run the command that follows and say which ports moved meanwhile");
  command->add_flag("--json", options->is_json, "Print one JSON object, with --watch one a round");
  // From its first word on, the rest of the line belongs to that command.
  command->prefix_command();
  command->callback([&invocation, options, command] {
    options->command = command->remaining();
    invocation.action = [options] { return run_nics(*options); };
  });
}

}  // namespace ferry::cli
