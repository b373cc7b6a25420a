#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "ops/plan/cluster_plan.hpp"

namespace ferry::cli {

namespace {

struct PlanOptions {
  ops::ClusterShape shape;
  std::string stack = "deepep";
  std::string mode = "ht";
  std::string dtype = "fp8";
  std::string routing = "uniform";
  int num_ranks = 0;
  bool is_json = false;
};

int run_plan(PlanOptions options) {
  ops::ClusterShape& shape = options.shape;
  if (options.num_ranks > 0) {
    FERRY_CHECK(options.num_ranks % shape.num_nodes == 0, ErrorCode::kInvalidArgument,
                "{} ranks do not divide among {} nodes", options.num_ranks, shape.num_nodes);
    shape.gpus_per_node = options.num_ranks / shape.num_nodes;
    // DeepEP's nodes have eight GPUs: 16 ranks without --nodes are two of them.
    if (options.stack == "deepep" && shape.num_nodes == 1 && options.num_ranks > 8 &&
        options.num_ranks % 8 == 0) {
      shape.num_nodes = options.num_ranks / 8;
      shape.gpus_per_node = 8;
    }
  }
  shape.is_low_latency = options.mode == "ll";
  shape.is_fp8 = options.dtype == "fp8";
  ops::set_routing(shape, options.routing);
  const ops::ClusterPlan plan =
      options.stack == "ferry" ? ops::plan_ferry(shape) : ops::plan_deepep(shape);
  fmt::print("{}",
             options.is_json ? ops::print_json(ops::plan_json(plan)) : ops::format_plan(plan));
  return ops::has_failure(plan.findings) ? kFailed : kFine;
}

}  // namespace

void add_plan_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "plan",
      "Memory, queue depth, bytes and times of a planned cluster; exit 1 if it cannot work");
  const auto options = std::make_shared<PlanOptions>();
  ops::ClusterShape& shape = options->shape;
  command->add_option("--for", options->stack, "The stack to plan for")
      ->check(CLI::IsMember({"deepep", "ferry"}))
      ->capture_default_str();
  command->add_option("--mode", options->mode, "ht (throughput) or ll (low latency)")
      ->check(CLI::IsMember({"ht", "ll"}))
      ->capture_default_str();
  const auto add_number = [&](const char* name, auto& value, const char* help, double most) {
    command->add_option(name, value, help)->check(CLI::Range(1.0, most))->capture_default_str();
  };
  add_number("--nodes", shape.num_nodes, "Hosts", 4096);
  add_number("--gpus", shape.gpus_per_node, "GPUs, and so ranks, of each host", 1024);
  add_number("--ranks", options->num_ranks, "Ranks of all hosts, in place of --gpus", 1 << 20);
  add_number("--tokens", shape.num_tokens, "Tokens of a rank, at most", 1e9);
  add_number("--hidden", shape.hidden, "Channels of a token", 1e6);
  add_number("--experts", shape.num_experts, "Experts of the model", 1e6);
  command->add_option("--redundant-experts", shape.num_redundant, "Replicas beside them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  add_number("--topk", shape.topk, "Experts of a token", 4096);
  command->add_option("--dtype", options->dtype, "Of dispatched rows; combine is bf16")
      ->check(CLI::IsMember({"fp8", "bf16"}))
      ->capture_default_str();
  command->add_option("--routing", options->routing, "uniform, or grouped:4/8")
      ->capture_default_str();
  add_number("--qp-depth", shape.qp_depth, "NVSHMEM_QP_DEPTH; DeepEP's own is 1024", 1e9);
  add_number("--sms", shape.num_sms, "Multiprocessors that DeepEP's throughput kernels take", 1024);
  add_number("--device-sms", shape.device_sms, "Multiprocessors of the GPU", 1024);
  add_number("--warp-groups", shape.warp_groups, "Of DeepEP's low-latency kernels; else chosen",
             1024);
  add_number("--nvl-send", shape.nvl_send, "DeepEP's Config, else its tuned value", 1e6);
  add_number("--nvl-recv", shape.nvl_recv, "DeepEP's Config, else its tuned value", 1e6);
  add_number("--rdma-send", shape.rdma_send, "DeepEP's Config, else its tuned value", 1e6);
  add_number("--rdma-recv", shape.rdma_recv, "DeepEP's Config, else its tuned value", 1e6);
  add_number("--nvlink-gbs", shape.nvlink_gbs, "GB/s of a GPU's NVLink in one direction", 1e6);
  add_number("--rdma-gbs", shape.rdma_gbs, "GB/s of a GPU's NIC in one direction", 1e6);
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_plan(*options); }; });
}

}  // namespace ferry::cli
