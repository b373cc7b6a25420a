#include "ops/install/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ops/install/runner.hpp"
#include "ops/install/version_table.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// Steps are shown as a user would type them.
const Identity kUser;

bool is_recorded_done(const PlanReport& report, const Phase& phase) {
  const auto record = report.state.phases.find(phase.id);
  return record != report.state.phases.end() && record->second.status == "done";
}

// What is written into a file stands below the command, line for line.
std::string format_step(const Step& step) {
  Step shown = step;
  shown.input.clear();
  std::string out = fmt::format("       # {}\n       {}\n", step.title,
                                escape_controls(shell_line(shown, kUser)));
  if (step.argv.front() != "diff")
    for (const std::string& line : lines_of(step.input))
      out += "         | " + escape_controls(line) + "\n";
  return out;
}

std::string format_phase(const PlanReport& report, const Phase& phase) {
  std::string out = fmt::format("{:>3}  {:<14} {:<11} {}\n", phase.number, phase.id,
                                status_name(phase.status), phase.title);
  if (!phase.reason.empty()) out += fmt::format("     {}\n", escape_controls(phase.reason));
  if (phase.status == PhaseStatus::kDue && is_recorded_done(report, phase))
    out += "     recorded as done; the check decides\n";
  for (const std::string& warning : phase.warnings)
    out += fmt::format("     warning: {}\n", warning);
  if (phase.status != PhaseStatus::kDue) return out;
  for (const std::string& name : phase.fetches)
    if (!is_pinned(version_entry(name)))
      out += fmt::format("     not pinned: {} {} ({})\n", name, version_entry(name).version,
                         version_entry(name).source);
  for (const Step& step : phase.steps) out += format_step(step);
  out += "     verify: " + phase.verify + "\n";
  if (phase.needs_reboot) out += "     takes effect after a reboot\n";
  return out;
}

nlohmann::ordered_json phase_json(const Phase& phase) {
  nlohmann::ordered_json json = {{"number", phase.number},
                                 {"id", phase.id},
                                 {"title", phase.title},
                                 {"status", status_name(phase.status)},
                                 {"reason", phase.reason},
                                 {"warnings", phase.warnings},
                                 {"verify", phase.verify},
                                 {"needs_reboot", phase.needs_reboot},
                                 {"fetches", nlohmann::json::array()},
                                 {"steps", nlohmann::json::array()}};
  for (const std::string& name : phase.fetches) {
    const VersionEntry& entry = version_entry(name);
    json["fetches"].push_back({{"name", name},
                               {"version", entry.version},
                               {"source", entry.source},
                               {"pin", entry.pin},
                               {"is_pinned", is_pinned(entry)}});
  }
  for (const Step& step : phase.steps)
    json["steps"].push_back({{"title", step.title},
                             {"command", command_line(step, kUser)},
                             {"folder", step.folder},
                             {"root", step.is_root}});
  return json;
}

}  // namespace

std::string format_plan(const PlanReport& report, const InstallOptions& options) {
  std::string out = fmt::format("plan: {} on {} below {}, for {}\n", options.stack, options.target,
                                options.prefix, report.host);
  if (!report.note.empty()) out += report.note + "\n";
  for (const Phase& phase : report.phases) out += format_phase(report, phase);
  out += "before the first phase:\n";
  for (const Finding& check : report.checks)
    out += fmt::format("     {:<8} {}: {}\n", verdict_name(check.verdict), check.title,
                       escape_controls(check.seen));
  return out + "nothing was changed; to act: " + apply_command(options) + "\n";
}

std::string format_script(const PlanReport& report, const InstallOptions& options) {
  std::string out = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} on {}, for {}. Run it as a user who may use sudo; it asks nothing else.\n"
      "# Where it says REBOOT, reboot and run what follows.\n"
      "set -euo pipefail\n",
      options.stack, options.target, report.host);
  bool is_reboot_due = false;
  for (const Phase& phase : report.phases) {
    out += fmt::format("\n# phase {}: {} ({})\n", phase.number, phase.title,
                       status_name(phase.status));
    if (phase.id == "after-reboot" && is_reboot_due)
      out += "echo 'REBOOT now, then run what follows here' >&2; exit 4\n";
    if (phase.status == PhaseStatus::kByHand || phase.status == PhaseStatus::kStopped)
      out += fmt::format("echo {} >&2; exit 4\n",
                         shell_quote("by hand: " + escape_controls(phase.reason)));
    if (phase.status == PhaseStatus::kRebootDue) is_reboot_due = true;
    if (phase.status != PhaseStatus::kDue) continue;
    is_reboot_due = is_reboot_due || phase.needs_reboot;
    for (const std::string& name : phase.fetches)
      if (!is_pinned(version_entry(name)))
        out +=
            fmt::format("# not pinned: {}; compare what comes with its publisher's word\n", name);
    for (const Step& step : phase.steps)
      out += shell_line(step, kUser) + "  # " + step.title + "\n";
  }
  return out;
}

nlohmann::ordered_json plan_json(const PlanReport& report, const InstallOptions& options) {
  nlohmann::ordered_json json = findings_json(report.checks, "ferry.install/1", report.host);
  json["stack"] = options.stack;
  json["target"] = options.target;
  json["prefix"] = options.prefix;
  json["note"] = report.note;
  json["phases"] = nlohmann::ordered_json::array();
  for (const Phase& phase : report.phases) json["phases"].push_back(phase_json(phase));
  return json;
}

}  // namespace ferry::ops
