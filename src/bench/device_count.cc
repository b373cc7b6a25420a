#include "bench/device_count.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "cuda/plugin.hpp"

namespace ferry::bench {

namespace {

// As it travels: "+" and the answer, or the error's code, ":" and its words.
std::string answer_of(const std::function<int()>& ask) noexcept {
  try {
    return fmt::format("+{}", ask());
  } catch (const Error& error) {
    return fmt::format("{}:{}", static_cast<int>(error.code()), error.what());
  } catch (...) {
    return {};
  }
}

std::string read_all(int fd) {
  std::string text;
  char bytes[512];
  while (true) {
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

}  // namespace

int ask_child(const std::function<int()>& ask) {
  int ends[2] = {-1, -1};
  FERRY_CHECK(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::kSystem, "cannot make a pipe: {}",
              errno_text(errno));
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t pid = ::fork();
  FERRY_CHECK(pid >= 0, ErrorCode::kSystem, "cannot start a child: {}", errno_text(errno));
  if (pid == 0) {
    const std::string answer = answer_of(ask);
    const ssize_t written = ::write(to.get(), answer.data(), answer.size());
    ::_exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 3);
  }
  to = UniqueFd();  // so that the child's end is the last one
  const std::string answer = read_all(from.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const std::size_t colon = answer.find(':');
  FERRY_CHECK(!answer.empty() && (answer[0] == '+' || colon != std::string::npos),
              ErrorCode::kInternal, "a child that was asked a question gave no answer: status {}",
              status);
  if (answer[0] == '+') return std::stoi(answer.substr(1));
  throw_error(ErrorCode{std::stoi(answer.substr(0, colon))}, answer.substr(colon + 1));
}

int count_devices() {
  const int count = ask_child([] { return cuda::load_plugin().num_devices(); });
  FERRY_CHECK(count > 0, ErrorCode::kUnavailable,
              "the CUDA engine finds no GPU; try: nvidia-smi, and CUDA_VISIBLE_DEVICES");
  return count;
}

}  // namespace ferry::bench
