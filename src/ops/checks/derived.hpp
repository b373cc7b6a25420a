#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// What several checks derive from the facts in the same way.

[[nodiscard]] bool has_gpu(const Facts& facts);
[[nodiscard]] bool has_hca(const Facts& facts);
[[nodiscard]] bool has_mlx5(const Facts& facts);
[[nodiscard]] bool has_efa(const Facts& facts);
[[nodiscard]] bool is_in_container(const Facts& facts);

[[nodiscard]] bool is_loaded(const Facts& facts, const std::string& module);
// nvidia_peermem or its predecessor, by any of the paths that say so.
[[nodiscard]] bool has_peermem(const Facts& facts);

// "PeerMappingOverride=1;" or "PeerMappingOverride=0x1" somewhere in the options' text.
[[nodiscard]] bool has_peer_mapping(const std::string& options);

// The NVSHMEM host library that a program started here would load: preloaded, else the first of the
// loader's path, else the one that a wheel brings. nullptr without any.
[[nodiscard]] const LibraryFacts* effective_nvshmem(const Facts& facts);
[[nodiscard]] std::vector<const LibraryFacts*> libraries_of(const Facts& facts,
                                                            const std::string& family);
// Distinct known versions, in the order of the search.
[[nodiscard]] std::vector<std::string> versions_of(const Facts& facts, const std::string& family);

[[nodiscard]] const PythonPackage* package(const Facts& facts, const std::string& name);

struct ActivePort {
  const HcaFacts* hca;
  const PortFacts* port;
};
// Ports in state ACTIVE; pointers into `hcas`, which must outlive them.
[[nodiscard]] std::vector<ActivePort> active_ports(const std::vector<HcaFacts>& hcas);
[[nodiscard]] bool is_ethernet(const PortFacts& port);

// The lowest RoCE v2 entry with an address that is routed: IPv4-mapped, or IPv6 beyond link-local.
// nullptr without one.
[[nodiscard]] const Gid* routable_gid(const PortFacts& port);
[[nodiscard]] bool is_link_local(const Gid& gid);

// Devices that NVSHMEM_HCA_LIST, DEEP_EP_DEVICE_TO_HCA_MAPPING or NCCL_IB_HCA name, without ports.
[[nodiscard]] std::vector<std::string> hcas_named_by_environment(const Facts& facts);

}  // namespace ferry::ops
