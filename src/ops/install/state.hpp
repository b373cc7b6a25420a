#pragma once

#include <map>
#include <string>

#include "base/unique_fd.hpp"

namespace ferry::ops {

// Raised when phases change their meaning: what an older version recorded says nothing then.
inline constexpr int kPlanVersion = 1;

struct PhaseRecord {
  std::string status;   // "started", "done", "failed"
  std::string boot_id;  // of the boot in which that was
  std::string time;     // UTC, for people

  friend bool operator==(const PhaseRecord&, const PhaseRecord&) = default;
};

// What earlier runs did on this machine. It records; what is to be done the phases' checks decide.
struct InstallState {
  std::string machine_id;
  std::map<std::string, PhaseRecord> phases;  // by id
  std::map<std::string, std::string>
      fetched;  // what came: name of the version table, and its words
};

// The folder of state, log and lock; one run at a time.
class StateFolder {
 public:
  // Makes the folder and takes the lock. Throws kNoResource naming the pid of a run that has it.
  explicit StateFolder(std::string folder);

  // What was recorded; empty if there is nothing, if it is of another machine (a cloned image), of
  // another plan version, or damaged. `note` then says so.
  [[nodiscard]] InstallState load(const std::string& machine_id, std::string& note) const;
  // All or nothing: an interruption leaves the former state.
  void save(const InstallState& state) const;

  [[nodiscard]] std::string log_path() const { return folder_ + "/log.txt"; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

 private:
  std::string folder_;
  UniqueFd lock_;
};

// The same reading without the lock, for the plan.
[[nodiscard]] InstallState read_state(const std::string& folder,
                                      const std::string& machine_id,
                                      std::string& note);

}  // namespace ferry::ops
