#pragma once

#include <signal.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/env.hpp"

namespace ferry::bench {

// Names the daemon to clients.
constexpr const char* kMpsPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";

// NVIDIA's multi-process service lets the kernels of several processes run on one GPU at the same
// time; without it they take turns.
struct MpsOptions {
  std::string program = "nvidia-cuda-mps-control";  // found on PATH, or a path
  std::chrono::milliseconds deadline{20'000};       // for starting, and again for stopping
  sigset_t signal_mask{};                           // of the daemon
};

// A private daemon with directories of its own, which nobody else can enter. Both are gone when
// this goes; a daemon that does not stop is reported, and left with its directories. A parent that
// is killed cannot stop it.
class MpsDaemon {
 public:
  // Throws kUnavailable where the program is not installed or fails, kSystem.
  explicit MpsDaemon(MpsOptions options);
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  // kMpsPipeVariable of its clients.
  [[nodiscard]] std::string pipe_directory() const { return directory_ + "/pipe"; }

 private:
  void start() const;
  void stop() const;

  MpsOptions options_;
  std::string directory_;
};

// What processes that share a GPU are given.
struct MpsUse {
  std::unique_ptr<MpsDaemon> daemon;  // while they run; null: none was started
  std::string note;                   // for people; may be empty
};

// For `num_processes` on `num_devices`. Starts no daemon where each process has a GPU, where
// kMpsPipeVariable already names one, or where none can be started, which the note says.
[[nodiscard]] MpsUse provide_mps(int num_processes,
                                 int num_devices,
                                 const Lookup& lookup,
                                 const MpsOptions& options);

}  // namespace ferry::bench
