#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "topo/distance.hpp"

namespace ferry::ops {

// A port that can carry the traffic of GPUs.
struct NicPort {
  std::string hca{};
  int port = 1;
  std::string pci{};
  std::string link_layer{};
  double rate_gbps = 0;

  [[nodiscard]] std::string name() const { return hca + ":" + std::to_string(port); }
};

struct LeftOutNic {
  std::string hca{};
  std::string reason{};
};

// Which NIC each GPU should use. GPUs and NICs stand in PCI order, which no renaming changes.
struct NicPlan {
  std::vector<GpuFacts> gpus{};
  std::vector<NicPort> nics{};
  std::vector<LeftOutNic> left_out{};
  std::vector<std::vector<topo::Distance>> distances{};  // [gpu][nic]
  std::vector<int> nic_of{};                             // [gpu] position in nics, -1 without one
  std::vector<int> nearest{};                            // what looking at one GPU alone gives

  // NICs that carry anything if every GPU takes its nearest one.
  [[nodiscard]] int num_used_by_nearest() const;
  [[nodiscard]] int num_used() const;
  [[nodiscard]] bool is_empty() const { return gpus.empty() || nics.empty(); }
};

// Ports that are not up are left out, as are those of another kind than the group of equal rate and
// link layer that carries most in sum: storage NICs, management ports.
[[nodiscard]] NicPlan plan_nics(const Facts& facts);

// "NV18", or the distance's name: what lies between two GPUs.
[[nodiscard]] std::string gpu_link(const Facts& facts, const GpuFacts& a, const GpuFacts& b);
// Active NVLinks between two GPUs, directly or through switches.
[[nodiscard]] int num_nvlinks(const GpuFacts& a, const GpuFacts& b);

// Values of the variables that make others follow the plan.
[[nodiscard]] std::string deep_ep_mapping(const NicPlan& plan);     // 0:mlx5_0:1,1:mlx5_1:1
[[nodiscard]] std::string nvshmem_pe_mapping(const NicPlan& plan);  // mlx5_0:1:1,mlx5_1:1:1
[[nodiscard]] std::string nvshmem_hca_list(const NicPlan& plan, std::size_t gpu);  // mlx5_0:1
[[nodiscard]] std::string nccl_ib_hca(const NicPlan& plan);  // =mlx5_0:1,mlx5_1:1

}  // namespace ferry::ops
