#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <random>
#include <stdexcept>

#include "support/spawn.hpp"

extern char** environ;

namespace ferry::support {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Variables by which launchers describe a rank: a child must see only the ones meant for it.
bool is_launcher_variable(std::string_view entry) {
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "FERRY_",      "OMPI_",       "PMIX_",       "SLURM_",      "RANK=",
      "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD", "MASTER_ADDR", "MASTER_PORT"};
  for (const std::string_view prefix : kPrefixes)
    if (entry.starts_with(prefix)) return true;
  return false;
}

std::vector<std::string> child_environment(const Variables& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_launcher_variable(*entry)) entries.emplace_back(*entry);
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::string own_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw std::runtime_error("cannot read /proc/self/exe");
  return {path.data(), static_cast<std::size_t>(length)};
}

std::string random_address() {
  static std::atomic<int> counter{0};
  return "unix:ferry-test-" + std::to_string(::getpid()) + "-" + std::to_string(++counter) + "-" +
         std::to_string(std::random_device{}());
}

}  // namespace

ProcessRanks::ProcessRanks(Options options)
    : options_(std::move(options)),
      address_(random_address()),
      deadline_(Clock::now() + options_.limit),
      processes_(options_.launcher.empty() ? static_cast<std::size_t>(options_.num_ranks) : 1) {
  for (int index = 0; index < num_processes(); ++index) start(index);
}

ProcessRanks::~ProcessRanks() {
  for (Process& process : processes_) {
    if (process.pid > 0 && !process.has_ended) {
      ::kill(process.pid, SIGKILL);  // ends a stopped process too
      ::waitpid(process.pid, nullptr, 0);
    }
    if (process.input_fd >= 0) ::close(process.input_fd);
    if (process.output_fd >= 0) ::close(process.output_fd);
  }
}

void ProcessRanks::start(int index) {
  Variables variables = options_.environment;
  if (options_.has_ferry_variables) {
    variables.emplace_back("FERRY_RANK", std::to_string(index));
    variables.emplace_back("FERRY_SIZE", std::to_string(options_.num_ranks));
    variables.emplace_back("FERRY_ADDRESS", address_);
  }
  if (options_.rank_environment)
    for (auto& variable : options_.rank_environment(index)) variables.push_back(variable);

  std::vector<std::string> arguments = options_.launcher;
  arguments.push_back(own_program());
  arguments.push_back("--role=" + options_.role);
  for (const std::string& argument : options_.arguments) arguments.push_back(argument);
  std::vector<std::string> environment = child_environment(variables);

  std::array<int, 2> input{};  // a socket, so that writing to a dead rank raises no SIGPIPE
  std::array<int, 2> output{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) != 0 ||
      ::pipe2(output.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDERR_FILENO);

  Process& process = processes_[static_cast<std::size_t>(index)];
  const int failure = ::posix_spawnp(&process.pid, arguments[0].c_str(), &actions, nullptr,
                                     pointers(arguments).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(input[1]);
  ::close(output[1]);
  process.input_fd = input[0];
  process.output_fd = output[0];
  if (failure != 0) {
    process.pid = -1;
    throw std::runtime_error("cannot run '" + arguments[0] + "': " + std::strerror(failure));
  }
  ::fcntl(process.output_fd, F_SETFL, O_NONBLOCK);
}

pid_t ProcessRanks::pid(int index) const { return processes_[static_cast<std::size_t>(index)].pid; }

void ProcessRanks::read_available(Process& process) {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = ::read(process.output_fd, bytes.data(), bytes.size());
    if (got < 0) return;  // nothing more for now
    if (got == 0) {
      ::close(process.output_fd);
      process.output_fd = -1;
      if (!process.partial.empty()) process.lines.push_back({process.partial, Clock::now()});
      process.partial.clear();
      return;
    }
    process.partial.append(bytes.data(), static_cast<std::size_t>(got));
    for (std::size_t end; (end = process.partial.find('\n')) != std::string::npos;) {
      process.lines.push_back({process.partial.substr(0, end), Clock::now()});
      process.partial.erase(0, end + 1);
    }
  }
}

void ProcessRanks::pump(std::chrono::milliseconds wait) {
  std::vector<pollfd> polled;
  std::vector<Process*> owners;
  for (Process& process : processes_) {
    if (process.output_fd < 0) continue;
    polled.push_back({process.output_fd, POLLIN, 0});
    owners.push_back(&process);
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  for (std::size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents != 0) read_available(*owners[i]);
  for (Process& process : processes_)
    if (!process.has_ended && ::waitpid(process.pid, &process.status, WNOHANG) == process.pid)
      process.has_ended = true;
}

ProcessRanks::Line ProcessRanks::expect_line(int index, std::string_view prefix) {
  Process& process = processes_[static_cast<std::size_t>(index)];
  for (;;) {
    while (process.num_read < process.lines.size()) {
      const Line& line = process.lines[process.num_read++];
      if (line.text.starts_with(prefix)) return {line.text.substr(prefix.size()), line.when};
    }
    const bool is_silent = process.output_fd < 0;
    if (is_silent || Clock::now() > deadline_) give_up(index, "line '" + std::string(prefix) + "'");
    pump(std::chrono::milliseconds(20));
  }
}

void ProcessRanks::send_line(int index, std::string_view text) {
  const std::string line = std::string(text) + "\n";
  const Process& process = processes_[static_cast<std::size_t>(index)];
  if (::send(process.input_fd, line.data(), line.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE)
    throw std::runtime_error(std::string("cannot write to a rank: ") + std::strerror(errno));
}

void ProcessRanks::send_line_to_all(std::string_view text) {
  for (int index = 0; index < num_processes(); ++index) send_line(index, text);
}

void ProcessRanks::signal(int index, int number) {
  const Process& process = processes_[static_cast<std::size_t>(index)];
  if (!process.has_ended) ::kill(process.pid, number);  // not reaped yet, so the id is still ours
}

int ProcessRanks::wait_exit(int index) {
  const Process& process = processes_[static_cast<std::size_t>(index)];
  while (!process.has_ended) {
    if (Clock::now() > deadline_) give_up(index, "its end");
    pump(std::chrono::milliseconds(20));
  }
  return WIFEXITED(process.status) ? WEXITSTATUS(process.status) : 128 + WTERMSIG(process.status);
}

std::string ProcessRanks::all_output() const {
  std::string text;
  for (int index = 0; index < num_processes(); ++index)
    for (const Line& line : processes_[static_cast<std::size_t>(index)].lines)
      text += "[" + std::to_string(index) + "] " + line.text + "\n";
  return text;
}

void ProcessRanks::give_up(int index, const std::string& waiting_for) const {
  throw std::runtime_error("process " + std::to_string(index) + ": no " + waiting_for +
                           "; output so far:\n" + all_output());
}

}  // namespace ferry::support
