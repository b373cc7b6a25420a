#include "ops/topology/nic_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ops/text.hpp"
#include "topo/hca_mapping.hpp"
#include "topo/nic_assignment.hpp"

namespace ferry::ops {

namespace {

// More of either is no host, and the search for the best plan would take its time.
constexpr std::size_t kMostDevices = 64;

topo::PciPlace place_of(const Facts& facts, const std::string& address) {
  for (const PciDevice& device : facts.pci) {
    if (device.address != address) continue;
    topo::PciPlace place{.path = device.path};
    if (device.numa_node.is_known()) place.numa_node = static_cast<int>(device.numa_node.value());
    return place;
  }
  return {.path = {address}};
}

// The first port that is up; else why there is none.
const PortFacts* usable_port(const HcaFacts& hca, std::string& reason) {
  for (const PortFacts& port : hca.ports) {
    if (port.state.is("ACTIVE")) return &port;
    reason = fmt::format("port {} is {}", port.number,
                         port.state.is_known() ? port.state.value() : "of unknown state");
  }
  if (hca.ports.empty()) reason = "it has no port";
  return nullptr;
}

std::string kind_of(const NicPort& nic) {
  return fmt::format("{:g} Gb/s {}", nic.rate_gbps, nic.link_layer);
}

// The kind of port that carries most in sum.
std::string main_kind(const std::vector<NicPort>& nics) {
  std::map<std::string, double> sum_of;
  for (const NicPort& nic : nics) sum_of[kind_of(nic)] += std::max(nic.rate_gbps, 1e-3);
  std::string best;
  for (const auto& [kind, sum] : sum_of)
    if (best.empty() || sum > sum_of[best]) best = kind;
  return best;
}

int num_distinct(std::vector<int> positions) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return static_cast<int>(positions.size()) -
         static_cast<int>(std::count(positions.begin(), positions.end(), -1));
}

int num_active(const GpuFacts& gpu, const std::string& peer) {
  int num = 0;
  for (const NvLink& link : gpu.nvlinks.value_or({}))
    if (link.is_active && (link.peer == peer || (peer.empty() && link.is_switch))) ++num;
  return num;
}

}  // namespace

int NicPlan::num_used_by_nearest() const { return num_distinct(nearest); }
int NicPlan::num_used() const { return num_distinct(nic_of); }

NicPlan plan_nics(const Facts& facts) {
  NicPlan plan;
  plan.gpus = facts.gpu_list();
  std::vector<NicPort> candidates;
  for (const HcaFacts& hca : facts.hca_list()) {
    std::string reason;
    const PortFacts* port = usable_port(hca, reason);
    if (port == nullptr) {
      plan.left_out.push_back({hca.name, reason});
      continue;
    }
    candidates.push_back({.hca = hca.name,
                          .port = port->number,
                          .pci = hca.pci.value_or(""),
                          .link_layer = port->link_layer.value_or("unknown link layer"),
                          .rate_gbps = port->rate_gbps.value_or(0)});
  }
  const std::string kind = main_kind(candidates);
  for (const NicPort& nic : candidates) {
    if (kind_of(nic) == kind) {
      plan.nics.push_back(nic);
    } else {
      plan.left_out.push_back({nic.hca, kind_of(nic) + ", those chosen are " + kind});
    }
  }
  std::stable_sort(plan.nics.begin(), plan.nics.end(),
                   [](const NicPort& a, const NicPort& b) { return a.pci < b.pci; });

  if (plan.gpus.size() > kMostDevices || plan.nics.size() > kMostDevices) {
    plan.left_out.push_back(
        {"all", fmt::format("{} GPUs and {} ports, at most {} of each are planned",
                            plan.gpus.size(), plan.nics.size(), kMostDevices)});
    plan.gpus.clear();
    plan.nics.clear();
  }
  for (const GpuFacts& gpu : plan.gpus) {
    std::vector<topo::Distance> row;
    for (const NicPort& nic : plan.nics)
      row.push_back(topo::distance_between(place_of(facts, gpu.pci), place_of(facts, nic.pci)));
    plan.distances.push_back(row);
  }
  plan.nic_of = topo::assign_nics(plan.distances);
  plan.nearest = topo::nearest_nics(plan.distances);
  return plan;
}

int num_nvlinks(const GpuFacts& a, const GpuFacts& b) {
  const int direct = num_active(a, b.pci);
  return direct > 0 ? direct : std::min(num_active(a, ""), num_active(b, ""));
}

std::string gpu_link(const Facts& facts, const GpuFacts& a, const GpuFacts& b) {
  const int links = num_nvlinks(a, b);
  if (links > 0) return fmt::format("NV{}", links);
  return topo::distance_name(
      topo::distance_between(place_of(facts, a.pci), place_of(facts, b.pci)));
}

std::string nvshmem_hca_list(const NicPlan& plan, std::size_t gpu) {
  const int nic = plan.nic_of.at(gpu);
  return nic < 0 ? std::string() : plan.nics.at(static_cast<std::size_t>(nic)).name();
}

std::string deep_ep_mapping(const NicPlan& plan) {
  topo::HcaMapping mapping;
  for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu)
    if (plan.nic_of[gpu] >= 0) mapping[static_cast<int>(gpu)] = nvshmem_hca_list(plan, gpu);
  return topo::format_hca_mapping(mapping);
}

std::string nvshmem_pe_mapping(const NicPlan& plan) {
  std::vector<std::string> entries;
  for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu)
    if (plan.nic_of[gpu] >= 0) entries.push_back(nvshmem_hca_list(plan, gpu) + ":1");
  return join(entries, ",");
}

std::string nccl_ib_hca(const NicPlan& plan) {
  std::vector<std::string> entries;
  for (const NicPort& nic : plan.nics) entries.push_back(nic.name());
  return entries.empty() ? std::string() : "=" + join(entries, ",");
}

}  // namespace ferry::ops
