#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/finding.hpp"
#include "ops/install/host_view.hpp"
#include "ops/install/phase.hpp"
#include "ops/install/state.hpp"

namespace ferry::ops {

// A plan, as a person reads it, as a shell script and as JSON.
struct PlanReport {
  std::vector<Phase> phases;
  std::vector<Finding> checks;
  InstallState state;
  std::string note;  // about the state
  std::string host;
};

[[nodiscard]] std::string format_plan(const PlanReport& report, const InstallOptions& options);
[[nodiscard]] std::string format_script(const PlanReport& report, const InstallOptions& options);
[[nodiscard]] nlohmann::ordered_json plan_json(const PlanReport& report,
                                               const InstallOptions& options);

}  // namespace ferry::ops
