#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ferry/error.hpp"
#include "ferry/group.hpp"

// Ranks for tests: as threads of this process, or as freshly executed copies of this program.

namespace ferry::support {

using Clock = std::chrono::steady_clock;

// What one call did: nothing thrown (code is unset), or a ferry::Error.
struct Outcome {
  bool failed = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::chrono::milliseconds took{0};
};
[[nodiscard]] Outcome attempt(const std::function<void()>& call);

// Deadlines long enough for a loaded machine and short enough that a stuck test says who is stuck.
[[nodiscard]] GroupConfig patient_config();

// Group::run_threads under a watchdog: a run longer than `limit` ends the program, naming `what`.
void run_ranks(int num_ranks,
               const std::function<void(Group)>& body,
               const GroupConfig& config = patient_config(),
               std::chrono::seconds limit = std::chrono::seconds(100));

// Executed ranks. Each runs the role `role` of this program (see role.hpp) with FERRY_RANK,
// FERRY_SIZE and FERRY_ADDRESS set; launcher variables of this process are not passed on. Output
// is read line by line, commands go to the rank's standard input. Every wait ends at the limit
// with an exception that carries everything the ranks have printed. Not thread safe.
class ProcessRanks {
 public:
  struct Options {
    std::string role;
    int num_ranks = 1;
    std::vector<std::string> arguments;  // after the role
    std::vector<std::pair<std::string, std::string>> environment;
    // Adds variables for one rank; with `has_ferry_variables` false it replaces them.
    std::function<std::vector<std::pair<std::string, std::string>>(int rank)> rank_environment;
    bool has_ferry_variables = true;
    // Program and leading arguments to run instead of one process per rank, such as mpirun -n 4;
    // then there is one process, number 0.
    std::vector<std::string> launcher;
    std::chrono::seconds limit{40};
  };

  explicit ProcessRanks(Options options);
  ~ProcessRanks();  // kills and reaps what still runs
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  [[nodiscard]] int num_processes() const { return static_cast<int>(processes_.size()); }
  [[nodiscard]] pid_t pid(int index) const;

  struct Line {
    std::string text;  // after the prefix
    Clock::time_point when;
  };
  // The next line of this process that starts with `prefix`; lines before it are passed over.
  Line expect_line(int index, std::string_view prefix);
  void send_line(int index, std::string_view text);
  void send_line_to_all(std::string_view text);
  void signal(int index, int number);
  // Exit status, or 128 + signal number.
  int wait_exit(int index);

  [[nodiscard]] std::string all_output() const;

 private:
  struct Process {
    pid_t pid = -1;
    int input_fd = -1;
    int output_fd = -1;
    bool has_ended = false;
    int status = 0;
    std::string partial;
    std::vector<Line> lines;
    std::size_t num_read = 0;
  };

  void start(int index);
  void pump(std::chrono::milliseconds wait);
  void read_available(Process& process);
  [[noreturn]] void give_up(int index, const std::string& waiting_for) const;

  Options options_;
  std::string address_;
  Clock::time_point deadline_;
  std::vector<Process> processes_;
};

}  // namespace ferry::support
