#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/install/host_view.hpp"
#include "ops/install/phase.hpp"
#include "ops/install/state.hpp"

namespace ferry::ops {

// The world that a run acts on; a test passes its own.
struct InstallWorld {
  std::string root = "/";  // where facts are read
  std::string state_folder;
  Identity identity;
  std::function<Facts()> gather;                // reads the host anew
  std::function<void(const std::string&)> say;  // one line for people
  // Where a program of a step is: the name as it stands, unless a test says otherwise.
  std::function<std::string(const std::string&)> locate = [](const std::string& name) {
    return name;
  };
  std::chrono::milliseconds longest_step{0};  // caps every step's deadline; 0: not
};

// The phases that `options` selects, in order. Throws kInvalidArgument for a name that is none.
[[nodiscard]] std::vector<Phase> select_phases(std::vector<Phase> phases,
                                               const InstallOptions& options);

// Runs the selected phases that are due, one after the other; the check of each decides before and
// after. Returns an exit code: 0 all hold, 1 something failed, 4 a reboot or a person is needed.
int apply_phases(const InstallOptions& options, const InstallWorld& world);

// The command that runs what `options` says, and the one that goes on where such a run stopped.
[[nodiscard]] std::string apply_command(const InstallOptions& options);
[[nodiscard]] std::string resume_command(const InstallOptions& options);

}  // namespace ferry::ops
