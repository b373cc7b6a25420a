#pragma once

#include <string>
#include <string_view>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// NCCL's topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). Where a cloud provider supplies one
// for its virtual machines, it is the only description of which devices share a switch.

// Takes paths and NUMA nodes of the devices from the file. Facts without GPUs or without RDMA
// devices get those that the file names. Throws kInvalidArgument naming `source`: no XML, no
// <system>, an element without its address.
void apply_nccl_topology(std::string_view text, std::string_view source, Facts& facts);

// The same from a file of this machine.
void apply_topology_file(const std::string& file, Facts& facts);

// The file for this host.
[[nodiscard]] std::string write_nccl_topology(const Facts& facts);

}  // namespace ferry::ops
