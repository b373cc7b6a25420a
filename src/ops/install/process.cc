#include "ops/install/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace ferry::ops {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kKeptBytes = 64 << 10;
constexpr std::chrono::seconds kGrace{5};

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe() {
  int fds[2] = {-1, -1};
  FERRY_CHECK(::pipe2(fds, O_CLOEXEC) == 0, ErrorCode::kSystem, "cannot make a pipe: {}",
              errno_text(errno));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// After fork, in the child: nothing but system calls.
[[noreturn]] void become(char* const* argv, int input, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  ::signal(SIGPIPE, SIG_DFL);
  if (::dup2(input, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 ||
      ::dup2(output, STDERR_FILENO) < 0)
    ::_exit(126);
  ::execvp(argv[0], argv);
  static_cast<void>(!::write(STDERR_FILENO, "no such program\n", 16));
  ::_exit(127);
}

class Child {
 public:
  explicit Child(const ProcessRequest& request) : request_(request) {
    std::vector<char*> argv;
    for (const std::string& word : request.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    Pipe input = make_pipe();
    Pipe output = make_pipe();
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    FERRY_CHECK(pid_ >= 0, ErrorCode::kSystem, "cannot start {}: {}", request.argv[0],
                errno_text(errno));
    if (pid_ == 0) become(argv.data(), input.read.get(), output.write.get(), parent);
    input_ = std::move(input.write);
    output_ = std::move(output.read);
    static_cast<void>(::fcntl(input_.get(), F_SETFL, O_NONBLOCK));
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  ProcessResult wait() {
    if (request_.deadline.count() > 0) end_ = Clock::now() + request_.deadline;
    while (output_.is_open()) step();
    return reap();
  }

 private:
  // One look at the pipes, or at the clock.
  void step() {
    if (sent_ == request_.input.size()) input_.reset();
    std::array<pollfd, 2> fds = {pollfd{output_.get(), POLLIN, 0},
                                 pollfd{input_.get(), POLLOUT, 0}};
    const int ready = ::poll(fds.data(), input_.is_open() ? 2 : 1, 200);
    if (ready < 0 && errno != EINTR) FERRY_THROW(ErrorCode::kSystem, "poll: {}", errno_text(errno));
    if (ready > 0 && (fds[0].revents & (POLLIN | POLLHUP)) != 0) take_output();
    if (ready > 0 && input_.is_open() && (fds[1].revents & (POLLOUT | POLLERR)) != 0) give_input();
    if (end_ && Clock::now() >= *end_) stop();
    if (has_ended()) drain();
  }

  void take_output() {
    std::array<char, 16384> block{};
    const ssize_t got = ::read(output_.get(), block.data(), block.size());
    if (got <= 0) {
      if (got == 0 || errno != EINTR) output_.reset();
      return;
    }
    const std::string_view bytes(block.data(), static_cast<std::size_t>(got));
    if (request_.output) request_.output(bytes);
    result_.output += bytes;
    if (result_.output.size() > 2 * kKeptBytes)
      result_.output.erase(0, result_.output.size() - kKeptBytes);
  }

  void give_input() {
    const ssize_t sent =
        ::write(input_.get(), request_.input.data() + sent_, request_.input.size() - sent_);
    if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      sent_ = request_.input.size();  // it does not want it
  }

  void stop() {
    ::kill(pid_, result_.is_late ? SIGKILL : SIGTERM);
    result_.is_late = true;
    end_ = Clock::now() + kGrace;
  }

  // A process that left a grandchild with our pipe behind has ended all the same.
  bool has_ended() {
    if (is_reaped_) return true;
    const pid_t got = ::waitpid(pid_, &status_, WNOHANG);
    is_reaped_ = got == pid_;
    return is_reaped_;
  }

  void drain() {
    static_cast<void>(::fcntl(output_.get(), F_SETFL, O_NONBLOCK));
    while (output_.is_open()) take_output();
  }

  ProcessResult reap() {
    if (!is_reaped_) {
      while (::waitpid(pid_, &status_, WNOHANG) != pid_) {
        ::poll(nullptr, 0, 5);
        if (end_ && Clock::now() >= *end_) stop();
      }
    }
    pid_ = -1;
    if (WIFEXITED(status_)) result_.exit_code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) result_.signal = WTERMSIG(status_);
    return std::move(result_);
  }

  const ProcessRequest& request_;
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::size_t sent_ = 0;
  std::optional<Clock::time_point> end_;
  int status_ = 0;
  bool is_reaped_ = false;
  ProcessResult result_;
};

}  // namespace

std::string ProcessResult::words() const {
  if (is_late) return "no end within its deadline";
  if (signal != 0) return fmt::format("killed by signal {}", signal);
  return fmt::format("exit code {}", exit_code);
}

ProcessResult run_process(const ProcessRequest& request) {
  // Writing to a program that has ended is an error value, not our death.
  ::signal(SIGPIPE, SIG_IGN);
  return Child(request).wait();
}

}  // namespace ferry::ops
