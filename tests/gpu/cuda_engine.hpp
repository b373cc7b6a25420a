#pragma once

#include <vector>

#include "contract/engine.hpp"

namespace ferry::contract {

// The CUDA engine in every mode and sizing, its ranks spread over the GPUs of this host.
[[nodiscard]] std::vector<EngineUnderTest> cuda_engines();

}  // namespace ferry::contract
