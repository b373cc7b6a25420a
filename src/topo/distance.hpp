#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ferry::topo {

// How far two PCI devices are from each other, nearest first; the names are those of
// `nvidia-smi topo -m`.
enum class Distance : int {
  kPix = 0,   // at most one bridge or switch between them
  kPxb = 1,   // several bridges, no host bridge
  kPhb = 2,   // the host bridge of one root complex
  kNode = 3,  // several host bridges of one NUMA node
  kSys = 4,   // the link between NUMA nodes
};
inline constexpr int kNumDistances = 5;

// "PIX", "PXB", "PHB", "NODE", "SYS".
[[nodiscard]] const char* distance_name(Distance distance) noexcept;

// Where a device sits.
struct PciPlace {
  std::vector<std::string> path{};  // addresses from the root port down to the device's own
  std::optional<int> numa_node{};
};

// From the common bridges of both paths; where there are none (in many virtual machines every
// device has a PCI domain of its own) from the NUMA nodes. Two devices that name no node are taken
// to be on one: machines with one node say so.
[[nodiscard]] Distance distance_between(const PciPlace& a, const PciPlace& b);

}  // namespace ferry::topo
