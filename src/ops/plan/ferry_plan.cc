#include <fmt/format.h>

#include "base/error.hpp"
#include "base/human.hpp"
#include "ferry/exchange.hpp"
#include "ops/plan/cluster_plan.hpp"

namespace ferry::ops {

namespace {

constexpr int kSmsOfDispatch = 24;  // what a rank alone on its GPU takes

Finding finding_of(Verdict verdict,
                   const std::string& id,
                   const std::string& title,
                   const std::string& seen,
                   const std::string& why,
                   const std::string& fix) {
  return {.id = "plan." + id,
          .verdict = verdict,
          .title = title,
          .seen = seen,
          .why = why,
          .fix = fix,
          .doc = "docs/first-cluster.md"};
}

}  // namespace

ClusterPlan plan_ferry(const ClusterShape& shape) {
  ClusterPlan plan;
  const int experts = shape.num_physical();
  const ExchangeConfig config{
      .num_experts = experts,
      .top_k = shape.topk,
      .hidden = shape.hidden,
      .max_tokens = shape.num_tokens,
      .mode = shape.is_low_latency ? Mode::kLowLatency : Mode::kHighThroughput};
  MemoryNeed need;
  const auto error =
      capture_error([&] { need = Exchange::bytes_needed(config, shape.num_ranks()); });
  plan.findings.push_back(finding_of(
      error ? Verdict::kFail : Verdict::kOk, "exchange", "an exchange of this shape",
      error ? error->what()
            : fmt::format("{} ranks, {} experts, top-{}, {} tokens of {}", shape.num_ranks(),
                          experts, shape.topk, shape.num_tokens, shape.hidden),
      "what an exchange refuses at its creation is refused here",
      error ? "change the value that the message names" : ""));
  const bool is_one_node = shape.num_nodes == 1;
  plan.findings.push_back(finding_of(
      is_one_node ? Verdict::kOk : Verdict::kFail, "nodes", "number of nodes",
      fmt::format("{} nodes <= 1", shape.num_nodes),
      "in this version rows travel within one host only", is_one_node ? "" : "--nodes 1"));
  if (error) return plan;
  plan.figures.push_back({"arena_bytes", static_cast<double>(need.arena_virtual_bytes),
                          human_bytes(need.arena_virtual_bytes) +
                              " arena per rank (address space; on a CPU pages follow use)"});
  plan.figures.push_back(
      {"delivery_bytes", static_cast<double>(need.delivery_bytes),
       human_bytes(need.delivery_bytes) + " for one delivery in the worst case"});
  plan.figures.push_back({"staging_bytes", static_cast<double>(need.staging_bytes),
                          human_bytes(need.staging_bytes) + " staging"});
  plan.figures.push_back(
      {"num_sms", kSmsOfDispatch,
       fmt::format("{} multiprocessors while rows move, none between begin and finish",
                   kSmsOfDispatch)});
  add_traffic(shape, false, plan);
  return plan;
}

}  // namespace ferry::ops
