#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "bench/blocked_signals.hpp"
#include "bench/options.hpp"

namespace ferry::bench {

// How the ranks of a bench come to be.
struct LaunchPlan {
  bool is_self = true;             // this process starts the ranks; else it is one of them
  std::vector<std::string> notes;  // what was seen and not followed, and why
};

// Pure: reads the environment only through `lookup`. Throws kInvalidArgument for --launch env where
// nothing is described.
[[nodiscard]] LaunchPlan plan_launch(const BenchOptions& options, const Lookup& lookup);

// One rank to start: a copy of this program.
struct RankProcess {
  int rank = 0;
  std::vector<Variable> environment;  // added to this process's own
};

// The ranks that this process starts: all of them, or those of one host. The address of a group on
// one host is drawn at random.
[[nodiscard]] std::vector<RankProcess> plan_ranks(const BenchOptions& options, int num_ranks);

// How one started rank ended.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;  // when no signal ended it
  int signal_number = 0;
};

// The exit code of the whole: 3 if a rank met a defect, else 2 for wrong usage, else 1 for a failed
// check or a killed or lost rank, else 4 for a rank that was stopped on purpose, else 0. Codes that
// no rank should end with count as 3.
[[nodiscard]] int worst_exit_code(std::span<const RankEnd> ends);

// Runs `arguments` (argv of this process, the program's name first) once per rank with "--launch
// env" added, waits for all of them, passes SIGINT, SIGTERM and SIGHUP on, and reports ranks that a
// signal killed on stderr. After the first such death or failure the others have a grace period,
// then they are killed. No rank outlives this process. Returns the exit code: worst_exit_code, or 4
// after a signal to stop.
[[nodiscard]] int run_rank_processes(std::span<const std::string> arguments,
                                     std::span<const RankProcess> ranks,
                                     const BlockedSignals& signals);

}  // namespace ferry::bench
