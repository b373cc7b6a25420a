#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/env.hpp"
#include "base/error.hpp"
#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"
#include "ops/topology/nic_plan.hpp"
#include "topo/hca_mapping.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kMapping = "DEEP_EP_DEVICE_TO_HCA_MAPPING";

// What is wrong with a mapping on this host; empty if nothing is.
std::string fault_of_mapping(const topo::HcaMapping& mapping,
                             const Facts& facts,
                             const NicPlan& plan) {
  std::set<std::string> used;
  for (const auto& [device, text] : mapping) {
    const auto hca = topo::parse_hca_port(text);
    if (!hca) return fmt::format("'{}' of device {} is no HCA[:PORT[:COUNT]]", text, device);
    const std::vector<HcaFacts> hcas = facts.hca_list();
    const bool is_there = std::any_of(
        hcas.begin(), hcas.end(), [&](const HcaFacts& found) { return found.name == hca->name; });
    if (!is_there)
      return fmt::format("device {} is mapped to {}, which is not here", device, hca->name);
    used.insert(hca->name);
  }
  for (const GpuFacts& gpu : plan.gpus)
    if (!mapping.contains(gpu.index)) return fmt::format("GPU {} is not in it", gpu.index);
  if (used.size() < std::min(plan.gpus.size(), plan.nics.size()))
    return fmt::format("{} GPUs use {} of {} NICs", plan.gpus.size(), used.size(),
                       plan.nics.size());
  return "";
}

Judgement judge_assignment(const Facts& facts, const DoctorOptions& options) {
  const NicPlan plan = plan_nics(facts);
  if (plan.is_empty()) return not_applicable("no GPU beside an RDMA port that is up");
  const std::string good = fmt::format("export {}={}", kMapping, deep_ep_mapping(plan));
  if (facts.process.has_variable(kMapping)) {
    const std::string text = facts.process.variable(kMapping);
    topo::HcaMapping mapping;
    if (const auto error = capture_error([&] { mapping = topo::parse_hca_mapping(text); }))
      return fail(error->what(), good);
    const std::string fault = fault_of_mapping(mapping, facts, plan);
    if (!fault.empty()) return fail(fmt::format("{}={}: {}", kMapping, text, fault), good);
    return ok(fmt::format("{} gives {} GPUs {} NICs", kMapping, plan.gpus.size(), plan.num_used()));
  }
  if (facts.process.has_variable("NVSHMEM_HCA_LIST"))
    return ok("NVSHMEM_HCA_LIST=" + facts.process.variable("NVSHMEM_HCA_LIST") +
              " of this process");
  if (plan.num_used_by_nearest() == plan.num_used())
    return ok(fmt::format("each GPU's nearest NIC is its own: {} NICs", plan.num_used()));
  return fail_across_nodes(
      options,
      fmt::format(
          "several GPUs share their nearest NIC: {} of {} NICs would be used, and {} is unset",
          plan.num_used_by_nearest(), plan.nics.size(), kMapping),
      good);
}

Judgement judge_support(const Facts& facts, const DoctorOptions&) {
  if (!facts.process.has_variable(kMapping))
    return not_applicable(fmt::format("{} is unset", kMapping));
  if (facts.software.checkouts.empty())
    return unknown(
        "no source tree of DeepEP was found",
        "grep _setup_device_hca_mapping in deep_ep/buffer.py of the tree that was built");
  for (const CheckoutFacts& checkout : facts.software.checkouts) {
    if (checkout.has_hca_mapping.is(false))
      return fail(fmt::format("{} has no _setup_device_hca_mapping: it ignores the variable",
                              checkout.path));
    if (checkout.has_hca_mapping.is_unknown())
      return unknown(checkout.path + ": " + checkout.has_hca_mapping.reason(),
                     "grep _setup_device_hca_mapping in deep_ep/buffer.py");
  }
  return ok(facts.software.checkouts.front().path + " reads it");
}

Judgement judge_pe_mapping(const Facts& facts, const DoctorOptions&) {
  const ProcessFacts& process = facts.process;
  std::string set;
  if (process.variable("NVSHMEM_ENABLE_NIC_PE_MAPPING") == "1")
    set = "NVSHMEM_ENABLE_NIC_PE_MAPPING=1";
  if (process.has_variable("NVSHMEM_HCA_PE_MAPPING")) set = "NVSHMEM_HCA_PE_MAPPING";
  if (set.empty()) return ok("not set");
  if (process.has_variable("NVSHMEM_HCA_LIST") || process.has_variable(kMapping))
    return ok(set + " together with a list per process");
  return fail(set + " without NVSHMEM_HCA_LIST per process");
}

Judgement judge_list(const Facts& facts, const DoctorOptions&) {
  const std::string list = facts.process.variable("NVSHMEM_HCA_LIST");
  const std::string nccl = facts.process.variable("NCCL_IB_HCA");
  if (list.empty() && nccl.empty())
    return not_applicable("neither NVSHMEM_HCA_LIST nor NCCL_IB_HCA is set");
  if (list.starts_with("="))
    return fail("NVSHMEM_HCA_LIST=" + list + " begins with '=', which only NCCL reads",
                "export NVSHMEM_HCA_LIST=" + list.substr(1));
  if (facts.hcas.is_unknown())
    return unknown("this host's devices are not readable", "ls /sys/class/infiniband");
  const auto is_here = [&](const std::string& name, bool is_prefix) {
    const std::vector<HcaFacts> hcas = facts.hca_list();
    return std::any_of(hcas.begin(), hcas.end(), [&](const HcaFacts& hca) {
      return is_prefix ? hca.name.starts_with(name) : hca.name == name;
    });
  };
  std::vector<std::string> gone;
  for (std::string entry : split(list, ',')) {
    if (entry.starts_with("^")) entry.erase(0, 1);
    const auto hca = topo::parse_hca_port(entry);
    if (!list.empty() && (!hca || !is_here(hca->name, false)))
      gone.push_back("NVSHMEM_HCA_LIST names '" + entry + "'");
  }
  const bool is_exact = nccl.starts_with("=") || nccl.starts_with("^=");
  for (std::string entry : split(nccl, ',')) {
    while (!entry.empty() && (entry[0] == '=' || entry[0] == '^')) entry.erase(0, 1);
    const auto hca = topo::parse_hca_port(entry);
    if (!nccl.empty() && !nccl.starts_with("^") && (!hca || !is_here(hca->name, !is_exact)))
      gone.push_back("NCCL_IB_HCA names '" + entry + "'");
  }
  if (!gone.empty()) return fail(join(gone, ", ") + ", which is not here");
  if (list.starts_with("^"))
    return warn("NVSHMEM_HCA_LIST=" + list +
                " excludes devices: all others are used, storage NICs as well");
  return ok("every device that is named is here");
}

Judgement judge_quotes(const Facts& facts, const DoctorOptions&) {
  std::vector<std::string> broken;
  for (const auto& [name, value] : facts.process.environment) {
    const bool is_ours = name.starts_with("NVSHMEM_") || name.starts_with("NCCL_") ||
                         name.starts_with("DEEP_EP_") || name.starts_with("FERRY_");
    if (is_ours && value.find_first_of("\"'") != std::string::npos)
      broken.push_back(name + "=" + value);
  }
  if (broken.empty()) return ok("no quotation mark inside a value");
  return fail(join(broken, "; "));
}

Judgement judge_dct(const Facts& facts, const DoctorOptions&) {
  const std::string value = facts.process.variable("NVSHMEM_IBGDA_NUM_DCT");
  if (value.empty() || value == "0") return ok("NVSHMEM_IBGDA_NUM_DCT is unset");
  return fail("NVSHMEM_IBGDA_NUM_DCT=" + value);
}

Judgement judge_depth(const Facts& facts, const DoctorOptions&) {
  const std::string value = facts.process.variable("NVSHMEM_QP_DEPTH");
  if (value.empty()) return ok("unset: DeepEP takes 1024, which carries 511 tokens per rank");
  const auto depth = parse_whole(value);
  if (!depth || *depth < 4)
    return fail("NVSHMEM_QP_DEPTH='" + value + "' is no depth", "export NVSHMEM_QP_DEPTH=1024");
  const std::string seen =
      fmt::format("NVSHMEM_QP_DEPTH={} carries {} tokens per rank", *depth, *depth / 2 - 1);
  return *depth < 1024 ? warn(seen) : ok(seen);
}

Judgement judge_handler(const Facts& facts, const DoctorOptions&) {
  if (!has_mlx5(facts)) return not_applicable("no mlx5 device");
  const std::string handler = lower(facts.process.variable("NVSHMEM_IBGDA_NIC_HANDLER"));
  if (handler == "cpu") return warn("NVSHMEM_IBGDA_NIC_HANDLER=cpu");
  if (!handler.empty() && handler != "gpu" && handler != "auto")
    return fail("NVSHMEM_IBGDA_NIC_HANDLER='" + handler + "', expected gpu, cpu or auto");
  return ok(handler.empty() ? "unset" : "NVSHMEM_IBGDA_NIC_HANDLER=" + handler);
}

Judgement judge_ferry_variables(const Facts& facts, const DoctorOptions&) {
  const auto lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = facts.process.environment.find(std::string(name));
    if (found == facts.process.environment.end()) return std::nullopt;
    return found->second;
  };
  if (const auto error = capture_error([&] { static_cast<void>(parse_env(lookup)); }))
    return fail(error->what());
  std::vector<std::string> names;
  for (const auto& [name, value] : facts.process.environment)
    if (name.starts_with("FERRY_")) names.push_back(name);
  const std::vector<std::string> warnings = unknown_env_warnings(names);
  if (!warnings.empty()) return warn(join(warnings, "; "));
  return ok(names.empty() ? "none is set" : join(names, ", "));
}

constexpr Check kChecks[] = {
    {"nic.assignment", "one NIC for each GPU", Stack::kDeepEp,
     "the mapping of the environment against the plan of ferry topo: a device that is not here, a "
     "GPU "
     "without NIC or NICs left idle is fail; without a mapping, GPUs that share their nearest NIC: "
     "warn, across hosts fail",
     "where a switch holds two GPUs and two NICs, both GPUs take the first NIC: half of the "
     "bandwidth, "
     "about 6.5 GB/s where all take one (problem 3 of the guide)",
     "ferry topo --format mapping", "D1 D3 O1 S3", judge_assignment},
    {"nic.mapping-support", "DeepEP reads the mapping", Stack::kDeepEp,
     "DEEP_EP_DEVICE_TO_HCA_MAPPING is set and the source tree lacks PR #466: fail",
     "the variable belongs to an open pull request; other trees ignore it silently",
     "git fetch origin pull/466/head:pr-466 in the tree, check it out and rebuild", "D1 S3",
     judge_support},
    {"env.pe-mapping", "NVSHMEM's NIC mapping", Stack::kDeepEp,
     "NVSHMEM_ENABLE_NIC_PE_MAPPING or NVSHMEM_HCA_PE_MAPPING without a list per process: fail",
     "high-throughput kernels form one NVSHMEM world per NVLink slot, in which every process is "
     "local "
     "rank 0: all take the first NIC",
     "unset both, or give each process its NVSHMEM_HCA_LIST: ferry topo", "D2 D3 S3",
     judge_pe_mapping},
    {"env.hca-list", "lists of RDMA devices", Stack::kBoth,
     "NVSHMEM_HCA_LIST and NCCL_IB_HCA against the devices of this host: '=' before NVSHMEM's "
     "list, or "
     "a name that is not here: fail",
     "no device is matched, or another one than was meant", "ferry topo", "D4", judge_list},
    {"env.quotes", "quotation marks in variables", Stack::kBoth,
     "a quotation mark inside a value of NVSHMEM, NCCL, DeepEP or FerryEP: fail",
     "a mark that was pasted along becomes part of the value: 'Connection timed out' in the "
     "bootstrap",
     "set the variable again without the mark", "E3", judge_quotes},
    {"env.dct", "dynamically connected queue pairs", Stack::kDeepEp,
     "NVSHMEM_IBGDA_NUM_DCT is set: fail",
     "DeepEP uses reliable connections only and hangs otherwise", "unset NVSHMEM_IBGDA_NUM_DCT",
     "F15", judge_dct},
    {"env.qp-depth", "queue depth", Stack::kDeepEp,
     "NVSHMEM_QP_DEPTH no number: fail; below 1024: warn",
     "a low-latency step of T tokens needs 2 (T + 1) entries, else the send queue wraps and hangs",
     "ferry plan --for deepep --mode ll --nodes 2 --gpus 8 --tokens 128", "F4", judge_depth},
    {"env.nic-handler", "NIC handler", Stack::kDeepEp, "cpu: warn; an unknown word: fail",
     "with the CPU handler internode dispatch was seen to hang (problem 4 of the guide)",
     "export NVSHMEM_IBGDA_NIC_HANDLER=gpu", "S4", judge_handler},
    {"env.ferry", "FerryEP's variables", Stack::kFerry,
     "a malformed value: fail; an unknown FERRY_ name: warn",
     "a value that cannot be read stops every program of FerryEP at its start",
     "ferry env --explain", "", judge_ferry_variables},
};

}  // namespace

std::span<const Check> mapping_checks() { return kChecks; }

}  // namespace ferry::ops
