#include "bench/launch.hpp"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bench/exec_strings.hpp"
#include "boot/launch_env.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

// A rank that lost a peer says so within 2 s and ends; this is for those that cannot.
constexpr std::chrono::seconds kGrace{15};
constexpr std::chrono::seconds kStopGrace{5};

std::string random_name() {
  unsigned char bytes[16] = {};
  FERRY_CHECK(::getrandom(bytes, sizeof(bytes), 0) == static_cast<ssize_t>(sizeof(bytes)),
              ErrorCode::kSystem, "cannot draw a random group name: {}", errno_text(errno));
  std::string name = "ferry-bench-";
  for (const unsigned char byte : bytes) name += fmt::format("{:02x}", byte);
  return name;
}

// The started ranks. Whatever still runs when this goes is killed and reaped.
class RankProcesses {
 public:
  ~RankProcesses() {
    signal_all(SIGKILL);
    for (const Running& child : running_) ::waitpid(child.pid, nullptr, 0);
  }

  void start(const RankProcess& rank, std::vector<std::string> arguments, const sigset_t& mask) {
    arguments.insert(arguments.end(), {"--launch", "env"});
    const ExecStrings argv(std::move(arguments));
    const ExecStrings envp(child_environment(rank.environment));
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    FERRY_CHECK(pid >= 0, ErrorCode::kSystem, "cannot start rank {}: {}", rank.rank,
                errno_text(errno));
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the parent may have died before this
      if (::getppid() != parent) ::_exit(3);
      ::sigprocmask(SIG_SETMASK, &mask, nullptr);
      ::execve("/proc/self/exe", argv.get(), envp.get());
      ::_exit(127);
    }
    running_.push_back({rank.rank, pid});
  }

  void signal_all(int number) const {
    for (const Running& child : running_) ::kill(child.pid, number);
  }

  // Collects those that have ended.
  [[nodiscard]] std::vector<RankEnd> reap() {
    std::vector<RankEnd> ends;
    std::erase_if(running_, [&](const Running& child) {
      int status = 0;
      if (::waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
      if (WIFSIGNALED(status))
        ends.push_back({child.rank, 0, WTERMSIG(status)});
      else
        ends.push_back({child.rank, WEXITSTATUS(status), 0});
      return true;
    });
    return ends;
  }

  [[nodiscard]] bool is_empty() const { return running_.empty(); }

  [[nodiscard]] std::string names() const {
    std::string text;
    for (const Running& child : running_)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", child.rank);
    return text;
  }

 private:
  struct Running {
    int rank;
    pid_t pid;
  };
  std::vector<Running> running_;
};

int severity(int exit_code) {
  switch (exit_code) {
    case 0: return 0;
    case 4: return 1;
    case 1: return 2;
    case 2: return 3;
    default: return 4;
  }
}

}  // namespace

LaunchPlan plan_launch(const BenchOptions& options, const Lookup& lookup) {
  const bool has_launcher = boot::has_process_launcher(lookup);
  LaunchPlan plan;
  if (options.launch == Launch::kEnv) {
    FERRY_CHECK(has_launcher || lookup("RANK"), ErrorCode::kInvalidArgument,
                "--launch env, but the environment describes no group (no FERRY_RANK, "
                "OMPI_COMM_WORLD_RANK, SLURM_PROCID or RANK); try: ferry bench --launch self");
    plan.is_self = false;
    return plan;
  }
  const bool has_hosts = !options.address.empty();
  if (options.launch == Launch::kAuto && has_launcher && !has_hosts && !options.has_thread_ranks) {
    plan.is_self = false;
    return plan;
  }
  std::string ignored;
  for (const char* name :
       {"FERRY_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK", "WORLD_SIZE"})
    if (const auto value = lookup(name))
      ignored += fmt::format("{}{}={}", ignored.empty() ? "" : ", ", name, *value);
  if (ignored.empty()) return plan;
  const char* why = has_hosts                         ? "--address starts the ranks of this host"
                    : options.has_thread_ranks        ? "--thread-ranks starts the ranks"
                    : options.launch == Launch::kSelf ? "--launch self starts the ranks"
                                                      : "no launcher of single ranks is seen";
  plan.notes.push_back(fmt::format("{} ignored: {}; try: ferry bench --launch env", ignored, why));
  return plan;
}

std::vector<RankProcess> plan_ranks(const BenchOptions& options, int num_ranks) {
  const bool has_hosts = !options.address.empty();
  const int first = has_hosts ? *options.node_rank * *options.ranks_per_node : 0;
  const int count = has_hosts ? *options.ranks_per_node : num_ranks;
  const std::string address = has_hosts ? options.address : "unix:" + random_name();
  std::vector<RankProcess> ranks;
  for (int rank = first; rank < first + count; ++rank)
    ranks.push_back({rank,
                     {{"FERRY_RANK", fmt::format("{}", rank)},
                      {"FERRY_SIZE", fmt::format("{}", num_ranks)},
                      {"FERRY_ADDRESS", address}}});
  return ranks;
}

int worst_exit_code(std::span<const RankEnd> ends) {
  int worst = 0;
  for (const RankEnd& end : ends) {
    const int own = end.signal_number != 0 ? 1 : end.exit_code;
    const int code = own >= 0 && own <= 4 ? own : 3;
    if (severity(code) > severity(worst)) worst = code;
  }
  return worst;
}

int run_rank_processes(std::span<const std::string> arguments,
                       std::span<const RankProcess> ranks,
                       const BlockedSignals& signals) {
  RankProcesses processes;
  for (const RankProcess& rank : ranks)
    processes.start(rank, {arguments.begin(), arguments.end()}, signals.before());

  std::vector<RankEnd> ends;
  std::optional<Clock::time_point> kill_at;
  const auto kill_within = [&](Clock::duration grace) {
    const Clock::time_point when = Clock::now() + grace;
    kill_at = kill_at ? std::min(*kill_at, when) : when;
  };
  bool is_stopped = false;
  while (true) {
    // SIGCHLD does not queue: every wake-up asks for all, and a look now and then costs nothing.
    for (const RankEnd& end : processes.reap()) {
      ends.push_back(end);
      if (end.signal_number != 0 && !is_stopped)
        log_line(LogLevel::kError, "bench",
                 fmt::format("rank {} was killed by signal {} ({})", end.rank, end.signal_number,
                             ::strsignal(end.signal_number)));
      if (end.signal_number != 0 || end.exit_code != 0) kill_within(kGrace);
    }
    if (processes.is_empty()) break;
    if (kill_at && Clock::now() >= *kill_at) {
      log_line(LogLevel::kError, "bench",
               fmt::format("ranks {} did not end by themselves and are killed", processes.names()));
      processes.signal_all(SIGKILL);
      kill_at.reset();
    }
    const int number = signals.wait(std::chrono::milliseconds(500));
    if (number == 0 || number == SIGCHLD) continue;
    is_stopped = true;
    processes.signal_all(number);
    kill_within(kStopGrace);
  }
  return is_stopped ? 4 : worst_exit_code(ends);
}

}  // namespace ferry::bench
