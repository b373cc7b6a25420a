#pragma once

#include "ops/facts/facts.hpp"
#include "ops/facts/root.hpp"

namespace ferry::ops {

// Reads everything that Facts names. Needs no privilege and no GPU; starts no process. What cannot
// be read is unknown in its place. On a live host this also asks the GPU driver (NVML), whose
// answers a tree carries in ferry/gpus.json.
[[nodiscard]] Facts gather_facts(const Root& root);

// Its parts, each in a file of its own. Later ones read what earlier ones found.
namespace gathering {
void gather_host(const Root& root, Facts& facts);
void gather_process(const Root& root, Facts& facts);
void gather_driver(const Root& root, Facts& facts);
void gather_gpus(const Root& root, Facts& facts);
void gather_hcas(const Root& root, Facts& facts);
void gather_interfaces(const Root& root, Facts& facts);
void gather_pci(const Root& root, Facts& facts);
void gather_toolchain(const Root& root, Facts& facts);
void gather_python(const Root& root, Facts& facts);
void gather_libraries(const Root& root, Facts& facts);
}  // namespace gathering

}  // namespace ferry::ops
