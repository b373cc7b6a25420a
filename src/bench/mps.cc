#include "bench/mps.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "bench/exec_strings.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{5};

// In /tmp whatever TMPDIR says: the daemon's sockets lie in it, and their paths are at most 107
// bytes.
std::string make_directory() {
  char path[] = "/tmp/ferry-mps-XXXXXX";
  FERRY_CHECK(::mkdtemp(path) != nullptr, ErrorCode::kSystem, "cannot make {}: {}", path,
              errno_text(errno));
  return path;
}

// A pipe's end from which `text` can be read.
UniqueFd readable(std::string_view text) {
  int ends[2] = {-1, -1};
  FERRY_CHECK(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::kSystem, "cannot make a pipe: {}",
              errno_text(errno));
  UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  FERRY_CHECK(::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
              ErrorCode::kSystem, "cannot write to a pipe: {}", errno_text(errno));
  return from;
}

// How a control program is started: `input` as its stdin, nothing of it on ours, in a session of
// its own, where no terminal sends it signals. Returns what posix_spawn does.
int spawn(pid_t& pid,
          const MpsOptions& options,
          const std::vector<std::string>& arguments,
          const std::vector<Variable>& variables,
          std::string_view input) {
  const UniqueFd in = readable(input);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &options.signal_mask);
  std::vector<std::string> all = {options.program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const ExecStrings argv(std::move(all));
  const ExecStrings envp(child_environment(variables));
  const int problem =
      ::posix_spawnp(&pid, options.program.c_str(), &actions, &attributes, argv.get(), envp.get());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return problem;
}

// The child's exit status, or -1 where it had not ended by itself by the deadline; it is then
// killed.
int wait_for_exit(pid_t pid, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return -1;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<Variable> variables_of(const std::string& directory) {
  return {{kMpsPipeVariable, directory + "/pipe"}, {"CUDA_MPS_LOG_DIRECTORY", directory + "/log"}};
}

std::string describe_status(int status, std::chrono::milliseconds limit) {
  return status < 0 ? fmt::format("it did not end by itself within {} ms", limit.count())
                    : fmt::format("exit code {}", status);
}

// A daemon that has just been told to quit may still write into its directories.
void remove_directory(const std::string& directory, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  std::error_code problem;
  do {
    problem.clear();
    std::filesystem::remove_all(directory, problem);
    if (!problem) return;
    std::this_thread::sleep_for(kPoll);
  } while (Clock::now() < deadline);
  FERRY_WARN("bench.mps", "cannot remove {}: {}", directory, problem.message());
}

}  // namespace

MpsDaemon::MpsDaemon(MpsOptions options)
    : options_(std::move(options)), directory_(make_directory()) {
  try {
    start();
  } catch (...) {
    remove_directory(directory_, {});
    throw;
  }
}

MpsDaemon::~MpsDaemon() {
  try {
    stop();
    remove_directory(directory_, options_.deadline);
  } catch (const std::exception& error) {
    FERRY_WARN("bench.mps", "{}", error.what());
  }
}

void MpsDaemon::start() const {
  for (const auto& [name, directory] : variables_of(directory_))
    FERRY_CHECK(::mkdir(directory.c_str(), 0700) == 0, ErrorCode::kSystem, "cannot make {}: {}",
                directory, errno_text(errno));
  pid_t pid = 0;
  const int problem = spawn(pid, options_, {"-d"}, variables_of(directory_), "");
  FERRY_CHECK(problem == 0, ErrorCode::kUnavailable, "'{}' cannot be run: {}", options_.program,
              errno_text(problem));
  const int status = wait_for_exit(pid, options_.deadline);
  FERRY_CHECK(status == 0, ErrorCode::kUnavailable, "'{} -d' failed: {}", options_.program,
              describe_status(status, options_.deadline));
}

void MpsDaemon::stop() const {
  pid_t pid = 0;
  const int problem = spawn(pid, options_, {}, variables_of(directory_), "quit\n");
  const int status = problem == 0 ? wait_for_exit(pid, options_.deadline) : 0;
  FERRY_CHECK(problem == 0 && status == 0, ErrorCode::kSystem,
              "MPS was not stopped: {}; try: echo quit | {}={} {}",
              problem != 0 ? errno_text(problem) : describe_status(status, options_.deadline),
              kMpsPipeVariable, pipe_directory(), options_.program);
}

MpsUse provide_mps(int num_processes,
                   int num_devices,
                   const Lookup& lookup,
                   const MpsOptions& options) {
  MpsUse use;
  if (num_processes <= num_devices) return use;
  if (const auto directory = lookup(kMpsPipeVariable)) {
    use.note = fmt::format("MPS is taken from {}={}", kMpsPipeVariable, *directory);
    return use;
  }
  try {
    use.daemon = std::make_unique<MpsDaemon>(options);
  } catch (const Error& error) {
    use.note = fmt::format(
        "MPS is missing, so {} processes on {} {} take turns and time slices will dominate: {}; "
        "try: --thread-ranks",
        num_processes, num_devices, num_devices == 1 ? "GPU" : "GPUs", error.what());
  }
  return use;
}

}  // namespace ferry::bench
