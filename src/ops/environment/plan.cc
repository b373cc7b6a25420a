#include <algorithm>
#include <set>

#include "ops/checks/derived.hpp"
#include "ops/environment/script.hpp"
#include "ops/text.hpp"
#include "ops/topology/nic_plan.hpp"

namespace ferry::ops {

namespace {

using Lines = std::vector<EnvironmentLine>;
using Kind = EnvironmentLine::Kind;

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The NVSHMEM that DeepEP is to use: the one NVSHMEM_DIR names, else one with headers and IBGDA.
const LibraryFacts* chosen_nvshmem(const Facts& facts) {
  const auto libraries = libraries_of(facts, "nvshmem");
  const std::string wanted = facts.process.variable("NVSHMEM_DIR");
  for (const LibraryFacts* library : libraries)
    if (!wanted.empty() && library->path.starts_with(wanted + "/")) return library;
  for (const LibraryFacts* library : libraries)
    if (library->has_ibgda && library->has_headers) return library;
  return nullptr;
}

void add_toolkit(const Facts& facts, const StackChoice& choice, Lines& lines) {
  std::string home = choice.cuda_home;
  for (const ToolkitFacts& toolkit : facts.software.toolkits)
    if (home.empty() && toolkit.is_default) home = toolkit.path;
  if (home.empty()) return;
  lines.push_back(
      {Kind::kSet, "CUDA_HOME", home, "the toolkit that extensions are built and linked with"});
  lines.push_back({Kind::kPrepend, "PATH", home + "/bin", "its nvcc before the distribution's"});
}

void add_nvshmem(const Facts& facts, const StackChoice& choice, Lines& lines) {
  std::string path;
  if (!choice.nvshmem.empty())
    path = choice.nvshmem + "/lib/libnvshmem_host.so.3";
  else if (const LibraryFacts* library = chosen_nvshmem(facts); library != nullptr)
    path = library->path;
  if (path.empty()) return;
  const std::string folder = parent(path);
  const std::string prefix = parent(folder);
  lines.push_back({Kind::kSet, "NVSHMEM_DIR", prefix,
                   "without it DeepEP builds with internode and low latency disabled"});
  lines.push_back({Kind::kSet, "NVSHMEM_HOME", prefix, "the same, for tools that read this name"});
  lines.push_back({Kind::kPrepend, "LD_LIBRARY_PATH", folder, "the host half and its transports"});
  lines.push_back({Kind::kPrepend, "PATH", prefix + "/bin", "nvshmem-info and the launcher"});
  lines.push_back(
      {Kind::kPreload, "LD_PRELOAD", path, "otherwise PyTorch's own NVSHMEM is loaded first"});
}

void add_checkout(const Facts& facts, const StackChoice& choice, Lines& lines) {
  std::string path = choice.checkout;
  if (path.empty() && !facts.software.checkouts.empty())
    path = facts.software.checkouts.front().path;
  if (!path.empty())
    lines.push_back({Kind::kPrepend, "PYTHONPATH", path, "DeepEP, built in place"});
}

// What all names of the devices begin with, up to their number: "mlx5", "rocep".
std::string common_prefix(const NicPlan& plan) {
  std::set<std::string> prefixes;
  for (const NicPort& nic : plan.nics) {
    const std::size_t letters = nic.hca.find_first_of("_0123456789");
    prefixes.insert(nic.hca.starts_with("mlx5") ? "mlx5" : nic.hca.substr(0, letters));
  }
  return prefixes.size() == 1 ? *prefixes.begin() : "";
}

// The index of the routable RoCE entry if all chosen ports agree on it; empty on InfiniBand.
std::string common_gid(const Facts& facts, const NicPlan& plan) {
  std::set<std::string> indices;
  for (const HcaFacts& hca : facts.hca_list())
    for (const PortFacts& port : hca.ports)
      for (const NicPort& nic : plan.nics)
        if (nic.hca == hca.name && nic.port == port.number && is_ethernet(port)) {
          const Gid* gid = routable_gid(port);
          indices.insert(gid == nullptr ? "" : std::to_string(gid->index));
        }
  return indices.size() == 1 ? *indices.begin() : "";
}

void add_nic_handler(const Facts& facts, const StackChoice& choice, Lines& lines) {
  const std::string name = "NVSHMEM_IBGDA_NIC_HANDLER";
  if (!choice.nic_handler.empty()) {
    lines.push_back({Kind::kSet, name, choice.nic_handler, "as the stack was installed"});
    return;
  }
  const bool can_ring = has_peer_mapping(facts.driver.running_registry_dwords.value_or(""));
  if (can_ring || !is_loaded(facts, "gdrdrv"))
    lines.push_back({Kind::kSet, name, "gpu",
                     can_ring
                         ? "the driver option lets kernels ring the doorbell"
                         : "the CPU's handler was seen to hang, and gdrdrv is not there for it"});
}

void add_ibgda(const Facts& facts, const StackChoice& choice, Lines& lines) {
  const NicPlan plan = plan_nics(facts);
  if (!has_mlx5(facts) || plan.is_empty()) return;
  lines.push_back({Kind::kSet, "NVSHMEM_REMOTE_TRANSPORT", "ibgda",
                   "kernels write the NIC's queues themselves"});
  lines.push_back(
      {Kind::kSet, "NVSHMEM_IB_ENABLE_IBGDA", "1", "the same, in the name that DeepEP sets"});
  add_nic_handler(facts, choice, lines);
  const std::string prefix = common_prefix(plan);
  if (!prefix.empty())
    lines.push_back(
        {Kind::kSet, "NVSHMEM_HCA_PREFIX", prefix, "what the devices' names begin with"});
  const std::string gid = common_gid(facts, plan);
  if (!gid.empty())
    lines.push_back({Kind::kSet, "NVSHMEM_IB_GID_INDEX", gid,
                     "the routable RoCE v2 entry of every chosen port"});
  lines.push_back(
      {Kind::kSet, "NVSHMEM_DISABLE_CUDA_VMM", "1", "as the guide's stack was measured"});
  lines.push_back({Kind::kSet, "DEEP_EP_DEVICE_TO_HCA_MAPPING", deep_ep_mapping(plan),
                   "one NIC for each GPU: the plan of ferry topo"});
}

void add_gib(const Facts& facts, Lines& lines) {
  const bool is_gke = facts.host.cloud.is("gcp") && facts.process.container.is("kubernetes");
  if (!is_gke || !facts.software.gib.is_known() || !has_hca(facts)) return;
  const std::string gib = facts.software.gib.value();
  const std::string why = "gIB, without which NCCL's initialisation fails here";
  lines.push_back({Kind::kPrepend, "LD_LIBRARY_PATH", gib + "/lib64", "gIB's network plugin"});
  lines.push_back({Kind::kSet, "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE",
                   gib + "/configs/guest_config.txtpb", why});
  const std::vector<GpuFacts> gpus = facts.gpu_list();
  if (!gpus.empty() && contains(gpus.front().name.value_or(""), "B200"))
    lines.push_back({Kind::kSet, "NCCL_TUNER_CONFIG_PATH", gib + "/configs/tuner_config_a4.txtpb",
                     "gIB's tuning of A4"});
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"NCCL_CROSS_NIC", "0"},
                                                        {"NCCL_NET_GDR_LEVEL", "PIX"},
                                                        {"NCCL_P2P_NET_CHUNKSIZE", "131072"},
                                                        {"NCCL_NVLS_CHUNKSIZE", "524288"},
                                                        {"NCCL_IB_ADAPTIVE_ROUTING", "1"},
                                                        {"NCCL_IB_QPS_PER_CONNECTION", "4"},
                                                        {"NCCL_IB_TC", "52"},
                                                        {"NCCL_IB_FIFO_TC", "84"}})
    lines.push_back({Kind::kSet, name, value, "gIB's guide for A4"});
}

}  // namespace

std::vector<EnvironmentLine> plan_environment(const Facts& facts, const StackChoice& choice) {
  Lines lines;
  add_toolkit(facts, choice, lines);
  add_nvshmem(facts, choice, lines);
  add_checkout(facts, choice, lines);
  add_ibgda(facts, choice, lines);
  add_gib(facts, lines);
  return lines;
}

}  // namespace ferry::ops
