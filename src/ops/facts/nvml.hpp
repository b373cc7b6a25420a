#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// What the GPU driver says through its management library, opened at run time.
struct NvmlAnswer {
  std::string error;  // why there is no answer; empty with one
  Fact<std::string> cuda_version;
  std::vector<GpuFacts> gpus;
};
[[nodiscard]] NvmlAnswer ask_nvml();

// "00000000:8F:00.0" and "0000:8f:00.0" are one address: the latter.
[[nodiscard]] std::string normal_pci_address(std::string_view address);

}  // namespace ferry::ops
