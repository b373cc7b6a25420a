#pragma once

#include <vector>

#include "ops/finding.hpp"
#include "ops/install/host_view.hpp"
#include "ops/install/phase.hpp"

namespace ferry::ops {

// What is looked at before the first phase: fail stops `--apply`, warn is shown. Pure over the host
// and the phases that are due.
[[nodiscard]] std::vector<Finding> check_before(const HostView& host,
                                                const std::vector<Phase>& phases);

}  // namespace ferry::ops
