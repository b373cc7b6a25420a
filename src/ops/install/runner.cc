#include "ops/install/runner.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "base/error.hpp"
#include "ops/finding.hpp"
#include "ops/install/phases.hpp"
#include "ops/install/preflight.hpp"
#include "ops/install/process.hpp"
#include "ops/install/version_table.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr int kFine = 0;
constexpr int kFailed = 1;
constexpr int kStopped = 4;
constexpr std::size_t kShownLines = 15;

std::string now_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

bool is_named(const Phase& phase, const std::string& name) {
  return name == phase.id || name == std::to_string(phase.number);
}

std::string last_lines(const std::string& output) {
  std::vector<std::string> lines = lines_of(output);
  if (lines.size() > kShownLines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kShownLines));
  std::string text;
  for (const std::string& line : lines) text += "    " + escape_controls(line) + "\n";
  return text;
}

class Run {
 public:
  Run(const InstallOptions& options, const InstallWorld& world)
      : options_(options),
        world_(world),
        root_(world.root),
        folder_(world.state_folder),
        log_(folder_.log_path(), std::ios::app | std::ios::binary) {}

  int run() {
    look_again();
    std::string note;
    state_ = folder_.load(facts_.host.machine_id.value_or(""), note);
    if (!note.empty()) world_.say(note);
    for (const Phase& phase : select_phases(phases_, options_)) selected_.push_back(phase.id);
    if (const int code = check_first(); code != kFine) return code;
    for (const std::string& id : selected_)
      if (const int code = run_phase(id); code != kFine) return code;
    world_.say("all selected phases hold");
    return kFine;
  }

 private:
  void look_again() {
    facts_ = world_.gather();
    phases_ = plan_phases(HostView(facts_, root_, options_));
  }

  [[nodiscard]] const Phase& phase_of(const std::string& id) const {
    return *std::find_if(phases_.begin(), phases_.end(),
                         [&](const Phase& phase) { return phase.id == id; });
  }

  [[nodiscard]] std::vector<Phase> due_phases() const {
    std::vector<Phase> due;
    for (const std::string& id : selected_)
      if (phase_of(id).status == PhaseStatus::kDue) due.push_back(phase_of(id));
    return due;
  }

  // What would make the run end half-way is found before its first command.
  int check_first() {
    std::vector<std::string> unpinned;
    for (const Phase& phase : due_phases())
      for (const std::string& name : phase.fetches)
        if (!is_pinned(version_entry(name))) unpinned.push_back(name);
    if (!unpinned.empty() && !options_.is_unpinned_accepted) {
      world_.say(
          "stopped: nobody has pinned " + join(unpinned, ", ") +
          "; with --accept-unpinned they are fetched all the same, and what came is recorded");
      return kStopped;
    }
    const auto findings = check_before(HostView(facts_, root_, options_), due_phases());
    for (const Finding& finding : findings)
      if (finding.verdict == Verdict::kFail || finding.verdict == Verdict::kWarn)
        world_.say(fmt::format("{}: {}: {}; {}; try: {}", verdict_name(finding.verdict),
                               finding.title, finding.seen, finding.why, finding.fix));
    return has_failure(findings) ? kFailed : kFine;
  }

  int run_phase(const std::string& id) {
    const Phase phase = phase_of(id);
    const auto record = state_.phases.find(id);
    const bool was_done = record != state_.phases.end() && record->second.status == "done";
    switch (phase.status) {
      case PhaseStatus::kDone:
      case PhaseStatus::kNotApplicable:
        world_.say(fmt::format("phase {} {}: {}", phase.number, id, status_name(phase.status)));
        if (phase.status == PhaseStatus::kDone) note(id, "done");
        return kFine;
      case PhaseStatus::kRebootDue: return at_reboot(phase);
      case PhaseStatus::kByHand:
      case PhaseStatus::kStopped: return stop_for_a_person(phase);
      case PhaseStatus::kDue: break;
    }
    if (was_done)
      world_.say(fmt::format("phase {} {}: recorded as done, but its check says: {}", phase.number,
                             id, phase.reason));
    if (phase.steps.empty()) return stop_for_a_person(phase);
    return act(phase);
  }

  int act(const Phase& phase) {
    world_.say(fmt::format("phase {} {}: {}", phase.number, phase.id, phase.title));
    for (const std::string& warning : phase.warnings) world_.say("warning: " + warning);
    note(phase.id, "started");
    for (const Step& step : phase.steps)
      if (!run_step(phase, step)) {
        note(phase.id, "failed");
        return kFailed;
      }
    look_again();
    const Phase& after = phase_of(phase.id);
    if (!is_settled(after.status) && after.status != PhaseStatus::kRebootDue) {
      note(phase.id, "failed");
      world_.say(fmt::format("phase {} {} ran to its end, but its check still says: {}; verify: {}",
                             after.number, after.id, after.reason, after.verify));
      world_.say("to go on: " + resume_command(options_));
      return kFailed;
    }
    note(phase.id, "done");
    return kFine;
  }

  bool run_step(const Phase& phase, const Step& step) {
    const std::string line = shell_line(step, world_.identity);
    world_.say("  " + step.title);
    log_ << now_text() << " phase " << phase.number << " " << line << std::endl;
    ProcessRequest request;
    request.argv = command_line(step, world_.identity);
    request.argv.front() = world_.locate(request.argv.front());
    request.input = step.input;
    request.deadline = step.deadline;
    if (world_.longest_step.count() > 0)
      request.deadline = std::min(request.deadline, world_.longest_step);
    request.output = [this](std::string_view bytes) { log_ << bytes << std::flush; };
    const ProcessResult result = run_process(request);
    if (step.may_fail && result.exit_code >= 0 && result.exit_code < 126) {
      if (step.argv.front() == "diff" && !result.output.empty())
        world_.say(last_lines(result.output));
      return true;
    }
    if (!result.is_fine()) return fail(phase, line, result.words(), result.output);
    if (!step.records.empty()) {
      state_.fetched[step.records] = trim(result.output.substr(0, 2000));
      folder_.save(state_);
    }
    if (!step.expected.empty() && !contains(result.output, step.expected))
      return fail(
          phase, line,
          fmt::format("got '{}', expected '{}'", trim(result.output.substr(0, 200)), step.expected),
          "");
    return true;
  }

  bool fail(const Phase& phase,
            const std::string& line,
            const std::string& how,
            const std::string& output) {
    world_.say(fmt::format("phase {} {} failed: {}: {}", phase.number, phase.id, line, how));
    if (!output.empty()) world_.say(last_lines(output));
    world_.say("log: " + folder_.log_path());
    world_.say("to go on: " + resume_command(options_));
    return false;
  }

  // Phases before the one named after the reboot may still run; that one stops.
  int at_reboot(const Phase& phase) {
    const std::string boot = facts_.host.boot_id.value_or("");
    const auto record = state_.phases.find(phase.id);
    if (record != state_.phases.end() && !boot.empty() && record->second.status == "done" &&
        record->second.boot_id != boot) {
      world_.say(fmt::format(
          "phase {} {}: the machine was booted since, and it still is not in force: {}; "
          "try: ferry doctor",
          phase.number, phase.id, phase.reason));
      return kFailed;
    }
    if (phase.id != "after-reboot") {
      if (record == state_.phases.end() || record->second.status != "done") note(phase.id, "done");
      world_.say(fmt::format("phase {} {}: {}", phase.number, phase.id, phase.reason));
      return kFine;
    }
    world_.say("stopped: a reboot is due (" + phase.reason + ")");
    world_.say("to go on: sudo reboot, then: " + resume_command(options_));
    if (options_.may_reboot) {
      Step step;
      step.title = "reboot";
      step.argv = {"reboot"};
      step.is_root = true;
      static_cast<void>(run_step(phase, step));
    }
    return kStopped;
  }

  int stop_for_a_person(const Phase& phase) {
    world_.say(fmt::format("stopped at phase {} {}: {}", phase.number, phase.id, phase.reason));
    world_.say("to go on after that: " + resume_command(options_));
    return kStopped;
  }

  void note(const std::string& id, const std::string& status) {
    const PhaseRecord record = {status, facts_.host.boot_id.value_or(""), now_text()};
    const auto found = state_.phases.find(id);
    // What was done stays dated as it was: the boot decides whether a reboot is still due.
    if (found != state_.phases.end() && found->second.status == "done" && status == "done") return;
    state_.phases[id] = record;
    folder_.save(state_);
  }

  const InstallOptions& options_;
  const InstallWorld& world_;
  Root root_;
  StateFolder folder_;
  std::ofstream log_;
  Facts facts_;
  std::vector<Phase> phases_;
  std::vector<std::string> selected_;
  InstallState state_;
};

}  // namespace

std::vector<Phase> select_phases(std::vector<Phase> phases, const InstallOptions& options) {
  const auto check_name = [&](const std::string& name) {
    std::vector<std::string> ids;
    for (const Phase& phase : phases) ids.push_back(phase.id);
    FERRY_CHECK(std::any_of(phases.begin(), phases.end(),
                            [&](const Phase& phase) { return is_named(phase, name); }),
                ErrorCode::kInvalidArgument, "'{}' is no phase, expected a number or one of {}",
                name, join(ids, ", "));
  };
  for (const std::string& name : options.only) check_name(name);
  if (!options.from.empty()) check_name(options.from);
  bool has_begun = options.from.empty();
  std::vector<Phase> selected;
  for (Phase& phase : phases) {
    has_begun = has_begun || is_named(phase, options.from);
    const bool is_wanted =
        options.only.empty() ||
        std::any_of(options.only.begin(), options.only.end(),
                    [&](const std::string& name) { return is_named(phase, name); });
    if (has_begun && is_wanted) selected.push_back(std::move(phase));
  }
  return selected;
}

int apply_phases(const InstallOptions& options, const InstallWorld& world) {
  return Run(options, world).run();
}

std::string apply_command(const InstallOptions& options) {
  std::string line = fmt::format("ferry install --stack {} --target {} --prefix {}", options.stack,
                                 options.target, shell_quote(options.prefix));
  if (options.nic_handler != "gpu") line += " --nic-handler " + options.nic_handler;
  if (options.nvshmem != "source") line += " --nvshmem " + options.nvshmem;
  if (!options.arch.empty()) line += " --arch " + options.arch;
  if (!options.source.empty()) line += " --source " + shell_quote(options.source);
  if (options.is_system_python) line += " --system-python";
  if (options.switches_cuda) line += " --switch-cuda";
  if (options.is_unpinned_accepted) line += " --accept-unpinned";
  for (const std::string& name : options.only) line += " --only " + name;
  return line + " --apply";
}

std::string resume_command(const InstallOptions& options) {
  return apply_command(options) + " --resume";
}

}  // namespace ferry::ops
