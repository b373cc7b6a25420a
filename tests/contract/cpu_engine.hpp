#pragma once

#include <vector>

#include "contract/engine.hpp"

namespace ferry::contract {

// The CPU engine in every mode and sizing.
[[nodiscard]] std::vector<EngineUnderTest> cpu_engines();

}  // namespace ferry::contract
