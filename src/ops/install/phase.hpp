#pragma once

#include <string>
#include <vector>

#include "ops/install/options.hpp"
#include "ops/install/step.hpp"

namespace ferry::ops {

// What a phase's check says of this host.
enum class PhaseStatus {
  kDone,           // holds already
  kDue,            // its steps are to be run
  kRebootDue,      // was done, and takes effect at the next boot
  kNotApplicable,  // not needed here
  kByHand,         // needed, and not ours to do here
  kStopped,        // something stands against it that a person must decide
};

// "done", "due", "reboot due", "not needed", "by hand", "stopped".
[[nodiscard]] const char* status_name(PhaseStatus status) noexcept;

struct Phase {
  int number = 0;
  std::string id{};     // "cuda-toolkit"
  std::string title{};  // "CUDA toolkit 12.9"
  PhaseStatus status = PhaseStatus::kDue;
  std::string reason{};                 // of the status: what was seen
  std::vector<std::string> warnings{};  // for people, before it is run
  std::vector<Step> steps{};            // also of a phase that is done, to be read
  std::vector<std::string> fetches{};   // names in the version table
  bool needs_reboot = false;            // takes effect only after one
  std::string verify{};                 // how a person sees that it worked
};

[[nodiscard]] bool is_settled(PhaseStatus status) noexcept;  // done or not needed

}  // namespace ferry::ops
