#include "ops/install/command.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/error.hpp"
#include "ops/facts/gather.hpp"
#include "ops/install/phases.hpp"
#include "ops/install/preflight.hpp"
#include "ops/install/report.hpp"
#include "ops/install/runner.hpp"

namespace ferry::ops {

namespace {

Identity find_identity(const Lookup& environment) {
  Identity identity;
  identity.is_root = ::geteuid() == 0;
  if (identity.is_root) identity.sudo_user = environment("SUDO_USER").value_or("");
  if (identity.sudo_user == "root") identity.sudo_user.clear();
  return identity;
}

const passwd* account_of(const Identity& identity) {
  return identity.sudo_user.empty() ? ::getpwuid(::geteuid())
                                    : ::getpwnam(identity.sudo_user.c_str());
}

// Under sudo the state is the user's too: the next run may go without.
std::string default_state_folder(const Lookup& environment, const Identity& identity) {
  if (identity.sudo_user.empty())
    if (const auto folder = environment("XDG_STATE_HOME"); folder && folder->starts_with('/'))
      return *folder + "/ferry/install";
  const passwd* account = account_of(identity);
  const std::string home =
      account != nullptr ? account->pw_dir : environment("HOME").value_or("/root");
  return home + "/.local/state/ferry/install";
}

PlanReport plan(const InstallCommand& command) {
  const Root root(command.source.root);
  const Facts facts = load_facts(command.source);
  const HostView host(facts, root, command.options);
  PlanReport report;
  report.phases = select_phases(plan_phases(host), command.options);
  report.checks = check_before(host, report.phases);
  report.host = host.system();
  // What this machine's runs recorded says nothing of a tree.
  if (root.is_live() && command.source.files.empty())
    report.state =
        read_state(command.state_folder, facts.host.machine_id.value_or(""), report.note);
  return report;
}

int apply(const InstallCommand& command, const Identity& identity) {
  FERRY_CHECK(command.source.root == "/" && command.source.files.empty(),
              ErrorCode::kInvalidArgument,
              "--apply acts on this host and goes with neither --root nor --facts");
  InstallWorld world;
  world.state_folder = command.state_folder;
  world.identity = identity;
  world.gather = [] { return gather_facts(Root()); };
  world.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  return apply_phases(command.options, world);
}

}  // namespace

int run_install(InstallCommand command) {
  const Lookup environment = process_environment();
  const Identity identity = find_identity(environment);
  if (const passwd* account = account_of(identity)) {
    command.options.user = account->pw_name;
    // A tree's files belong to whoever unpacked it.
    if (command.source.root == "/") command.options.user_id = account->pw_uid;
  }
  if (command.state_folder.empty())
    command.state_folder = default_state_folder(environment, identity);
  if (command.options.is_resumed) command.options.is_applied = true;
  if (command.options.is_applied) return apply(command, identity);
  const PlanReport report = plan(command);
  if (command.is_json)
    fmt::print("{}", print_json(plan_json(report, command.options)));
  else
    fmt::print("{}", command.is_script ? format_script(report, command.options)
                                       : format_plan(report, command.options));
  return 0;
}

}  // namespace ferry::ops
