#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/finding.hpp"

namespace ferry::ops {

struct DoctorOptions {
  bool is_multi_node = false;  // the job spans hosts: what only the network needs is judged harder
  bool for_deepep = true;
  bool for_ferry = true;
  std::vector<std::string> only{};  // ids, or their first part ("nvshmem"); empty: all
};

// What a check makes of the facts of one host. An empty fix stands for the check's own.
struct Judgement {
  Verdict verdict = Verdict::kUnknown;
  std::string seen{};
  std::string fix{};
};

enum class Stack { kBoth, kDeepEp, kFerry };

// One row of the table that the doctor runs and docs/checks.md is made from.
struct Check {
  const char* id;
  const char* title;
  Stack stack;
  const char* rule;     // what is compared, and which outcome gives which verdict
  const char* why;      // why it matters
  const char* fix;      // what to do about it
  const char* catches;  // ids of field reports that it answers
  Judgement (*judge)(const Facts& facts, const DoctorOptions& options);
};

// Each group in a file of its own.
[[nodiscard]] std::span<const Check> driver_checks();
[[nodiscard]] std::span<const Check> port_checks();
[[nodiscard]] std::span<const Check> mapping_checks();
[[nodiscard]] std::span<const Check> version_checks();
[[nodiscard]] std::span<const Check> build_checks();
[[nodiscard]] std::span<const Check> process_checks();
[[nodiscard]] std::span<const Check> machine_checks();

struct CheckGroup {
  const char* title;
  std::span<const Check> checks;
};
[[nodiscard]] std::vector<CheckGroup> all_checks();

// Shorthand of the checks.
[[nodiscard]] inline Judgement ok(std::string seen) { return {Verdict::kOk, std::move(seen)}; }
[[nodiscard]] inline Judgement warn(std::string seen, std::string fix = "") {
  return {Verdict::kWarn, std::move(seen), std::move(fix)};
}
[[nodiscard]] inline Judgement fail(std::string seen, std::string fix = "") {
  return {Verdict::kFail, std::move(seen), std::move(fix)};
}
// `how`: how to find out.
[[nodiscard]] inline Judgement unknown(std::string seen, std::string how) {
  return {Verdict::kUnknown, std::move(seen), std::move(how)};
}
[[nodiscard]] inline Judgement not_applicable(std::string seen) {
  return {Verdict::kNotApplicable, std::move(seen)};
}
// fail where the job spans hosts, warn on one host.
[[nodiscard]] inline Judgement fail_across_nodes(const DoctorOptions& options,
                                                 std::string seen,
                                                 std::string fix = "") {
  return {options.is_multi_node ? Verdict::kFail : Verdict::kWarn, std::move(seen), std::move(fix)};
}

}  // namespace ferry::ops
