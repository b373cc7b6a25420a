#pragma once

#include <vector>

#include "ops/diagnose/rules.hpp"

namespace ferry::ops {

// "timeout (dispatch CPU)", the kernels' own timeouts, counters that stayed at -1: the message of
// many causes. Collects everything that speaks for one of them, and never answers without.
[[nodiscard]] std::vector<Hypothesis> explain_timeout(const Clues& clues);

}  // namespace ferry::ops
