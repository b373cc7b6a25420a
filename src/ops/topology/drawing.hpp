#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/topology/nic_plan.hpp"

namespace ferry::ops {

// The matrix of links: GPUs against GPUs and NICs.
[[nodiscard]] std::string format_links(const Facts& facts, const NicPlan& plan);
// The plan in words: a line per GPU, what is left out and why, and the variables.
[[nodiscard]] std::string format_plan(const NicPlan& plan);
[[nodiscard]] nlohmann::ordered_json plan_json(const Facts& facts, const NicPlan& plan);
// One picture: GPUs above, NICs below, a line for each pair of the plan, thick where it is near.
[[nodiscard]] std::string draw_svg(const Facts& facts, const NicPlan& plan);

}  // namespace ferry::ops
