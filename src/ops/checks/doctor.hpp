#pragma once

#include <string>
#include <vector>

#include "ops/checks/check.hpp"

namespace ferry::ops {

// Runs every check that the options select on one host, in the order of the table. An id of
// `options.only` that no check has is kInvalidArgument naming the nearest.
[[nodiscard]] std::vector<Finding> judge_host(const Facts& facts, const DoctorOptions& options);

// What differs between hosts that must agree ("compare.gid-index", ...), then what each host's own
// checks found wrong, the host's name in the title.
[[nodiscard]] std::vector<Finding> judge_hosts(const std::vector<Facts>& hosts,
                                               const DoctorOptions& options);
// The comparisons alone.
[[nodiscard]] std::vector<Finding> compare_hosts(const std::vector<Facts>& hosts);

// docs/checks.md, whole.
[[nodiscard]] std::string checks_markdown();

// A comparison between hosts, as a row of its table.
struct Comparison {
  const char* id;
  const char* title;
  Verdict if_different;
  const char* why;
  const char* fix;
  std::string (*value_of)(const Facts& facts);  // "" where the host does not say
};
[[nodiscard]] std::span<const Comparison> all_comparisons();

}  // namespace ferry::ops
