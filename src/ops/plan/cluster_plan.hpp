#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ops/finding.hpp"

namespace ferry::ops {

// A cluster and a model that somebody plans for. Sizes per rank unless said otherwise.
struct ClusterShape {
  bool is_low_latency = false;
  int num_nodes = 1;
  int gpus_per_node = 8;
  std::int64_t num_tokens = 4096;
  std::int64_t hidden = 7168;
  int num_experts = 256;
  int num_redundant = 0;  // replicas of experts, which take physical slots as well
  int topk = 8;
  bool is_fp8 = true;  // dispatch; combine is bf16
  int num_groups = 1;  // of experts, of which a token's choices lie in `num_chosen_groups`
  int num_chosen_groups = 1;
  // Of DeepEP; 0 stands for its default.
  std::int64_t qp_depth = 0;
  int num_sms = 20;  // that its high-throughput kernels take
  int device_sms = 132;
  int warp_groups = 0;
  int nvl_send = 0;
  int nvl_recv = 0;
  int rdma_send = 0;
  int rdma_recv = 0;
  // Rates in one direction and per GPU.
  double nvlink_gbs = 450;
  double rdma_gbs = 50;

  [[nodiscard]] int num_ranks() const { return num_nodes * gpus_per_node; }
  [[nodiscard]] int num_physical() const { return num_experts + num_redundant; }
};

struct Figure {
  std::string id{};  // "ll_buffer_bytes"
  double value = 0;
  std::string text{};  // for people: "2.00 GiB low-latency buffer"
};

// What must hold, each as a finding with its inequality and the nearest legal value, and what it
// costs.
struct ClusterPlan {
  std::vector<Finding> findings{};
  std::vector<Figure> figures{};
};
[[nodiscard]] ClusterPlan plan_deepep(const ClusterShape& shape);
[[nodiscard]] ClusterPlan plan_ferry(const ClusterShape& shape);

// Shape of routings: "uniform", or "grouped:4/8" (choices lie in 4 of 8 groups). Throws
// kInvalidArgument on anything else.
void set_routing(ClusterShape& shape, const std::string& routing);

// DeepEP's low-latency buffer, in bytes; 128-bit, because what is refused may be far too large.
[[nodiscard]] double low_latency_bytes(std::int64_t num_tokens,
                                       std::int64_t hidden,
                                       int num_experts);

// Of `num_places` places that hold the experts evenly, how many a token's choices reach.
[[nodiscard]] double expected_distinct(const ClusterShape& shape, int num_places);

// Expected bytes and times over both kinds of link: common to both stacks.
void add_traffic(const ClusterShape& shape, bool is_row_per_expert, ClusterPlan& plan);

[[nodiscard]] std::string format_plan(const ClusterPlan& plan);
[[nodiscard]] nlohmann::ordered_json plan_json(const ClusterPlan& plan);

}  // namespace ferry::ops
