#include "ops/plan/cluster_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

double message_bytes(const ClusterShape& shape, bool is_fp8) {
  const auto hidden = static_cast<double>(shape.hidden);
  const double row = is_fp8 ? hidden + hidden / 128 * 4 : 2 * hidden;
  return row + 8.0 * shape.topk + 16;  // ids, weights, and where the token came from
}

struct Traffic {
  double rdma_bytes = 0;    // that leave a GPU for other nodes
  double nvlink_bytes = 0;  // that leave it for GPUs of its node
};

// Copies of a token: one per node over the network and one per rank over NVLink, or one per expert.
Traffic traffic_of(const ClusterShape& shape, bool is_row_per_expert, bool is_fp8) {
  const double bytes = static_cast<double>(shape.num_tokens) * message_bytes(shape, is_fp8);
  const double nodes = shape.num_nodes;
  const double gpus = shape.gpus_per_node;
  if (is_row_per_expert) {
    const double copies = shape.topk;
    return {bytes * copies * (nodes - 1) / nodes, bytes * copies / nodes * (gpus - 1) / gpus};
  }
  const double distinct_nodes = expected_distinct(shape, shape.num_nodes);
  const double distinct_ranks = expected_distinct(shape, shape.num_ranks());
  return {bytes * distinct_nodes * (nodes - 1) / nodes, bytes * distinct_ranks * (gpus - 1) / gpus};
}

void add_operation(const ClusterShape& shape,
                   const std::string& name,
                   const Traffic& traffic,
                   ClusterPlan& plan) {
  const double rdma_us = traffic.rdma_bytes / shape.rdma_gbs / 1e3;
  const double nvlink_us = traffic.nvlink_bytes / shape.nvlink_gbs / 1e3;
  plan.figures.push_back(
      {name + "_rdma_bytes", traffic.rdma_bytes,
       fmt::format("{}: {:.1f} MB per GPU over the network, {:.0f} us at {:g} GB/s", name,
                   traffic.rdma_bytes / 1e6, rdma_us, shape.rdma_gbs)});
  plan.figures.push_back(
      {name + "_nvlink_bytes", traffic.nvlink_bytes,
       fmt::format("{}: {:.1f} MB per GPU over NVLink, {:.0f} us at {:g} GB/s", name,
                   traffic.nvlink_bytes / 1e6, nvlink_us, shape.nvlink_gbs)});
  plan.figures.push_back({name + "_us", std::max(rdma_us, nvlink_us),
                          fmt::format("{}: at least {:.0f} us, the slower of the two", name,
                                      std::max(rdma_us, nvlink_us))});
}

}  // namespace

double low_latency_bytes(std::int64_t num_tokens, std::int64_t hidden, int num_experts) {
  const auto tokens = static_cast<double>(num_tokens);
  const auto width = static_cast<double>(hidden);
  const double scales = std::floor(width / 128);
  const double dispatch = 16 + std::max(2 * width, width + 4 * scales);
  const double combine = 4 * scales + 2 * width;
  const double experts = num_experts;
  const double send = std::max(tokens * dispatch, experts * tokens * combine);
  const double receive = std::max(experts * tokens * dispatch, experts * tokens * combine);
  const double signals = std::ceil(4 * experts / 128) * 128;
  return 2 * (send + receive + signals);
}

double expected_distinct(const ClusterShape& shape, int num_places) {
  // Choices lie in a part of the experts, which lies on the same part of the places.
  const double part = static_cast<double>(shape.num_chosen_groups) / shape.num_groups;
  const double places = std::max(1.0, num_places * part);
  const double experts = std::max(1.0, shape.num_physical() * part);
  // 1 - C(E - E/places, K) / C(E, K): that a place holds one of K choices without repetition.
  double none = 1;
  for (int k = 0; k < shape.topk; ++k) {
    const double left = experts - experts / places - k;
    none *= left <= 0 ? 0 : left / (experts - k);
  }
  return places * (1 - none);
}

void set_routing(ClusterShape& shape, const std::string& routing) {
  if (routing == "uniform") return;
  const std::string mark = "grouped:";
  const std::size_t slash = routing.find('/');
  if (routing.starts_with(mark) && slash != std::string::npos) {
    const auto chosen = parse_whole(routing.substr(mark.size(), slash - mark.size()));
    const auto groups = parse_whole(routing.substr(slash + 1));
    if (chosen && groups && *chosen >= 1 && *groups >= *chosen && *groups <= 4096) {
      shape.num_chosen_groups = static_cast<int>(*chosen);
      shape.num_groups = static_cast<int>(*groups);
      return;
    }
  }
  FERRY_THROW(ErrorCode::kInvalidArgument,
              "the routing is '{}', expected uniform or grouped:CHOSEN/GROUPS such as grouped:4/8; "
              "a recorded routing is measured by: ferry bench --routing FILE",
              routing);
}

void add_traffic(const ClusterShape& shape, bool is_row_per_expert, ClusterPlan& plan) {
  plan.figures.push_back(
      {"distinct_ranks", expected_distinct(shape, shape.num_ranks()),
       fmt::format("a token reaches {:.2f} of {} ranks and {:.2f} of {} nodes",
                   expected_distinct(shape, shape.num_ranks()), shape.num_ranks(),
                   expected_distinct(shape, shape.num_nodes), shape.num_nodes)});
  add_operation(shape, "dispatch", traffic_of(shape, is_row_per_expert, shape.is_fp8), plan);
  add_operation(shape, "combine", traffic_of(shape, is_row_per_expert, false), plan);
}

std::string format_plan(const ClusterPlan& plan) {
  std::string out;
  for (const Figure& figure : plan.figures) out += figure.text + "\n";
  return out + "\n" + format_findings(plan.findings, {.is_complete = true});
}

nlohmann::ordered_json plan_json(const ClusterPlan& plan) {
  nlohmann::ordered_json json = findings_json(plan.findings, "ferry.plan/1", this_host());
  json["figures"] = nlohmann::ordered_json::object();
  for (const Figure& figure : plan.figures) json["figures"][figure.id] = figure.value;
  return json;
}

}  // namespace ferry::ops
