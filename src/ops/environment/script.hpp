#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/finding.hpp"

namespace ferry::ops {

// One line of the environment script. Folders of path variables go to the front, once.
struct EnvironmentLine {
  enum class Kind { kSet, kPrepend, kPreload };
  Kind kind = Kind::kSet;
  std::string name{};
  std::string value{};
  std::string why{};
};

// Where a stack lies that an installer has decided on; what is empty is read from the facts.
struct StackChoice {
  std::string cuda_home{};
  std::string nvshmem{};      // folder with lib/ and include/
  std::string checkout{};     // DeepEP, built in place
  std::string nic_handler{};  // gpu, cpu
};

// What a DeepEP stack on this host needs in its environment, and nothing that does not apply here:
// no IBGDA without mlx5 devices, no GID index on InfiniBand, gIB on GKE only.
[[nodiscard]] std::vector<EnvironmentLine> plan_environment(const Facts& facts,
                                                            const StackChoice& choice = {});

// A shell script to be sourced, as often as one likes. Preloads a file only while it is readable.
[[nodiscard]] std::string format_script(const std::vector<EnvironmentLine>& lines,
                                        const std::string& host);
// The script that takes all of it back.
[[nodiscard]] std::string format_unset(const std::vector<EnvironmentLine>& lines);

// An existing script against the plan: a finding per variable that is missing, different, or set
// there and not wanted here.
[[nodiscard]] std::vector<Finding> check_script(const std::string& text,
                                                const std::vector<EnvironmentLine>& lines);

// 'text' for a POSIX shell; as it stands where that is safe.
[[nodiscard]] std::string shell_quoted(const std::string& text);

}  // namespace ferry::ops
