#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ops/checks/derived.hpp"
#include "ops/checks/doctor.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

std::string hca_names(const Facts& facts) {
  std::vector<std::string> names;
  for (const HcaFacts& hca : facts.hca_list()) names.push_back(hca.name);
  return join(names, " ");
}

// "3 3 3 1": what one port says for each device that is up, or the one value that all have.
template <typename Value>
std::string per_port(const Facts& facts, bool ethernet_only, const Value& value_of) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  std::vector<std::string> values;
  for (const ActivePort& active : active_ports(hcas))
    if (!ethernet_only || is_ethernet(*active.port)) values.push_back(value_of(active));
  const std::set<std::string> distinct(values.begin(), values.end());
  return distinct.size() == 1 ? *distinct.begin() : join(values, " ");
}

std::string gid_indices(const Facts& facts) {
  return per_port(facts, true, [](const ActivePort& active) {
    const Gid* gid = routable_gid(*active.port);
    return gid == nullptr ? std::string("none") : std::to_string(gid->index);
  });
}

std::string mtus(const Facts& facts) {
  return per_port(facts, true, [](const ActivePort& active) {
    return active.hca->netdev_mtu.is_known() ? std::to_string(active.hca->netdev_mtu.value()) : "?";
  });
}

std::string kinds(const Facts& facts) {
  return per_port(facts, false, [](const ActivePort& active) {
    return fmt::format("{:g}Gb/s-{}", active.port->rate_gbps.value_or(0),
                       active.port->link_layer.value_or("?"));
  });
}

std::string modules(const Facts& facts) {
  if (facts.modules.loaded.is_unknown()) return "";
  std::vector<std::string> names;
  for (const char* name : {"nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_core", "efa"})
    if (is_loaded(facts, name)) names.emplace_back(name);
  return names.empty() ? "none" : join(names, " ");
}

std::string driver_version(const Facts& facts) { return facts.driver.version.value_or(""); }
std::string registry(const Facts& facts) {
  if (!facts.driver.running_registry_dwords.is_known()) return "";
  return has_peer_mapping(facts.driver.running_registry_dwords.value()) ? "set" : "not set";
}
std::string nvshmem(const Facts& facts) {
  const LibraryFacts* library = effective_nvshmem(facts);
  return library == nullptr ? "none" : library->version.value_or("");
}
std::string nccl(const Facts& facts) {
  const auto libraries = libraries_of(facts, "nccl");
  return libraries.empty() ? "none" : libraries.front()->version.value_or("");
}
std::string torch(const Facts& facts) {
  const PythonPackage* found = package(facts, "torch");
  return found == nullptr ? "none" : found->version;
}
std::string gpus(const Facts& facts) {
  const std::vector<GpuFacts> list = facts.gpu_list();
  return list.empty() ? "none"
                      : fmt::format("{} x {}", list.size(), list.front().name.value_or("?"));
}
std::string kernel(const Facts& facts) { return facts.host.kernel.value_or(""); }
std::string verbs(const Facts& facts) {
  const auto libraries = libraries_of(facts, "mlx5");
  return libraries.empty() ? "none" : libraries.front()->highest_tag.value_or("");
}
std::string mapping(const Facts& facts) {
  const std::string value = facts.process.variable("DEEP_EP_DEVICE_TO_HCA_MAPPING");
  return value.empty() ? "unset" : value;
}
std::string stack_variables(const Facts& facts) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : facts.process.environment) {
    // A list for one process, and what names this host, differ by intent.
    const bool is_own =
        name == "NVSHMEM_HCA_LIST" || name == "FERRY_RANK" || contains(name, "_ADDR");
    if (!is_own && (name.starts_with("NVSHMEM_") || name.starts_with("NCCL_")))
      variables.push_back(name + "=" + value);
  }
  return variables.empty() ? "none" : join(variables, " ");
}

constexpr Comparison kComparisons[] = {
    {"compare.gpus", "GPUs", Verdict::kFail, "ranks take the same number of GPUs on each host",
     "use hosts of one kind", gpus},
    {"compare.hca-names", "names of RDMA devices", Verdict::kFail,
     "lists and mappings name devices; one environment serves all hosts only if the names agree",
     "the same driver packages on all hosts, or lists per host: ferry topo", hca_names},
    {"compare.ports", "rate and link layer of ports", Verdict::kWarn,
     "the slowest port sets the pace", "look at the host that differs: ferry doctor --only port",
     kinds},
    {"compare.gid-index", "routable RoCE entry", Verdict::kFail,
     "one fixed index in the environment points at another address on another host",
     "leave NVSHMEM_IB_GID_INDEX and NCCL_IB_GID_INDEX unset, or make the addresses' order agree",
     gid_indices},
    {"compare.mtu", "MTU of RoCE interfaces", Verdict::kFail,
     "a queue pair takes the smaller MTU, and kernels that assume the larger one hang",
     "set one MTU on all hosts and switches", mtus},
    {"compare.modules", "kernel modules", Verdict::kFail,
     "one host without the peer-memory module is enough for all ranks to wait for ever",
     "modprobe the missing module on the host that lacks it", modules},
    {"compare.driver", "driver version", Verdict::kWarn,
     "bugs that one driver has appear on some ranks only", "install one version", driver_version},
    {"compare.driver-option", "driver option", Verdict::kFail,
     "hosts would take different NIC handlers",
     "set PeerMappingOverride on all hosts: ferry install --stack deepep --target bare-metal",
     registry},
    {"compare.nvshmem", "NVSHMEM that loads", Verdict::kFail,
     "versions of one job must agree to the last number",
     "install one version, and preload it: ferry env", nvshmem},
    {"compare.nccl", "NCCL that loads", Verdict::kFail,
     "different versions do not talk to each other", "install one version", nccl},
    {"compare.torch", "torch", Verdict::kWarn, "an extension is built for one torch",
     "install one version", torch},
    {"compare.verbs", "user-space verbs", Verdict::kWarn, "GIN may be there on some hosts only",
     "install one rdma-core", verbs},
    {"compare.kernel", "kernel", Verdict::kWarn,
     "bugs that one kernel has appear on some ranks only", "boot one kernel", kernel},
    {"compare.mapping", "GPU-NIC mapping", Verdict::kWarn,
     "ranks of one rail may use NICs of different rails", "use one mapping: ferry topo", mapping},
    {"compare.variables", "NVSHMEM's and NCCL's variables", Verdict::kWarn,
     "ranks that were configured differently wait for each other",
     "source one script on all hosts: ferry env", stack_variables},
};

// "a, b: 3; c: 1".
std::string describe(const std::map<std::string, std::vector<std::string>>& hosts_of) {
  std::vector<std::string> texts;
  for (const auto& [value, hosts] : hosts_of) texts.push_back(join(hosts, ", ") + ": " + value);
  return join(texts, "; ");
}

Finding compare(const Comparison& row, const std::vector<Facts>& hosts) {
  std::map<std::string, std::vector<std::string>> hosts_of;  // by value
  std::size_t num_silent = 0;
  for (const Facts& facts : hosts) {
    const std::string value = row.value_of(facts);
    if (value.empty()) {
      ++num_silent;
    } else {
      hosts_of[value].push_back(facts.host.name);
    }
  }
  Finding finding{.id = row.id,
                  .verdict = Verdict::kOk,
                  .title = row.title,
                  .seen = describe(hosts_of),
                  .why = row.why,
                  .fix = "",
                  .doc = std::string("docs/checks.md#") + row.id};
  if (hosts_of.size() > 1) {
    finding.verdict = row.if_different;
    finding.fix = row.fix;
  } else if (hosts_of.empty()) {
    finding.verdict = Verdict::kNotApplicable;
    finding.seen = "no host has any";
  } else if (num_silent > 0) {
    finding.verdict = Verdict::kUnknown;
    finding.seen += fmt::format("; {} hosts do not say", num_silent);
    finding.fix = "run ferry facts on those hosts again, outside the container";
  }
  return finding;
}

// Ranks of one host whose facts were taken in each rank: two of them on one GPU.
Finding compare_devices(const std::vector<Facts>& hosts) {
  std::map<std::string, std::vector<std::string>> ranks_of;  // by host and device
  for (const Facts& facts : hosts) {
    const std::string device = facts.process.variable("CUDA_VISIBLE_DEVICES");
    std::string rank = facts.process.variable("LOCAL_RANK");
    if (rank.empty()) rank = facts.process.variable("OMPI_COMM_WORLD_LOCAL_RANK");
    if (!device.empty() && !rank.empty() && !contains(device, ","))
      ranks_of[facts.host.name + " device " + device].push_back(rank);
  }
  Finding finding{.id = "compare.gpu-sharing",
                  .verdict = Verdict::kNotApplicable,
                  .title = "one GPU for each rank",
                  .seen = "no facts of several ranks of one host",
                  .why = "'Called NVSHMEM API not supported with limited MPG'",
                  .fix = "",
                  .doc = "docs/checks.md#compare.gpu-sharing"};
  std::vector<std::string> shared;
  for (const auto& [device, ranks] : ranks_of)
    if (ranks.size() > 1)
      shared.push_back(fmt::format("{}: local ranks {}", device, join(ranks, ", ")));
  if (!shared.empty()) {
    finding.verdict = Verdict::kFail;
    finding.seen = join(shared, "; ");
    finding.fix = "set the device by the local rank before NVSHMEM starts";
  } else if (!ranks_of.empty()) {
    finding.verdict = Verdict::kOk;
    finding.seen = fmt::format("{} ranks, a device each", ranks_of.size());
  }
  return finding;
}

}  // namespace

std::span<const Comparison> all_comparisons() { return kComparisons; }

std::vector<Finding> compare_hosts(const std::vector<Facts>& hosts) {
  std::vector<Finding> findings;
  for (const Comparison& row : kComparisons) findings.push_back(compare(row, hosts));
  findings.push_back(compare_devices(hosts));
  return findings;
}

}  // namespace ferry::ops
