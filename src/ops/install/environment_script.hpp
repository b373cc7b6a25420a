#pragma once

#include <string>

#include "ops/install/host_view.hpp"

namespace ferry::ops {

// The environment script of an installed DeepEP stack: what phase 10 writes and its check compares.
[[nodiscard]] std::string make_environment_script(const HostView& host);

}  // namespace ferry::ops
