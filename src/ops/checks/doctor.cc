#include "ops/checks/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kDoc = "docs/checks.md#";

// "nvshmem" selects every check whose id begins with "nvshmem.".
bool is_selected_by(const std::string& word, const std::string& id) {
  return id == word || id.starts_with(word + ".");
}

std::vector<std::string> all_ids() {
  std::vector<std::string> ids;
  for (const CheckGroup& group : all_checks())
    for (const Check& check : group.checks) ids.emplace_back(check.id);
  return ids;
}

void check_names(const std::vector<std::string>& only) {
  const std::vector<std::string> ids = all_ids();
  for (const std::string& word : only) {
    const bool is_known = std::any_of(
        ids.begin(), ids.end(), [&](const std::string& id) { return is_selected_by(word, id); });
    FERRY_CHECK(is_known, ErrorCode::kInvalidArgument,
                "no check is called '{}', nor do any begin with it; the checks are {}", word,
                join(ids, ", "));
  }
}

bool is_selected(const Check& check, const DoctorOptions& options) {
  if (check.stack == Stack::kDeepEp && !options.for_deepep) return false;
  if (check.stack == Stack::kFerry && !options.for_ferry) return false;
  return options.only.empty() ||
         std::any_of(options.only.begin(), options.only.end(),
                     [&](const std::string& word) { return is_selected_by(word, check.id); });
}

Finding finding_of(const Check& check, Judgement judgement) {
  const bool is_advised =
      judgement.verdict != Verdict::kOk && judgement.verdict != Verdict::kNotApplicable;
  if (judgement.fix.empty() && is_advised) judgement.fix = check.fix;
  return {.id = check.id,
          .verdict = judgement.verdict,
          .title = check.title,
          .seen = judgement.seen,
          .why = check.why,
          .fix = is_advised ? judgement.fix : "",
          .doc = std::string(kDoc) + check.id};
}

}  // namespace

std::vector<CheckGroup> all_checks() {
  return {{"Driver and kernel", driver_checks()},
          {"RDMA devices and ports", port_checks()},
          {"Mapping and variables", mapping_checks()},
          {"Versions", version_checks()},
          {"Builds", build_checks()},
          {"Process, container, network", process_checks()},
          {"GPUs and FerryEP", machine_checks()}};
}

std::vector<Finding> judge_host(const Facts& facts, const DoctorOptions& options) {
  check_names(options.only);
  std::vector<Finding> findings;
  for (const CheckGroup& group : all_checks())
    for (const Check& check : group.checks)
      if (is_selected(check, options))
        findings.push_back(finding_of(check, check.judge(facts, options)));
  return findings;
}

std::vector<Finding> judge_hosts(const std::vector<Facts>& hosts, const DoctorOptions& options) {
  std::vector<Finding> findings = compare_hosts(hosts);
  for (const Facts& facts : hosts) {
    for (Finding finding : judge_host(facts, options)) {
      if (finding.verdict == Verdict::kOk || finding.verdict == Verdict::kNotApplicable) continue;
      finding.title = facts.host.name + ": " + finding.title;
      findings.push_back(finding);
    }
  }
  return findings;
}

}  // namespace ferry::ops
