#include "ops/diagnose/rules.hpp"

#include <fmt/format.h>

#include "ops/diagnose/timeout_rules.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

using Hypotheses = std::vector<Hypothesis>;

Hypotheses only(const char* cause, std::string because = "") {
  return {{cause, Likelihood::kLikely, std::move(because), ""}};
}

bool transport_failed(const Clues& clues) {
  return clues.has(Signal::kTransportFailed) || clues.has(Signal::kDispatchTimeout) ||
         clues.has(Signal::kKernelTimeout) || clues.has(Signal::kCounterMissing);
}

// GIN's backend is NONE: the verbs library is too old, or the ports of a NIC were merged.
Hypotheses explain_gin_none(const Clues& clues) {
  const bool is_one_node = clues.num_hosts() == 1;
  const std::string nodes =
      is_one_node ? "one node only: disabling GIN is enough (NCCL_GIN_ENABLE=0)" : "";
  if (const Sighting* tag = clues.find(Signal::kVerbsTag))
    return only("versions.verbs-too-old",
                join({"libmlx5 lacks " + *tag->values.begin(), nodes}, nodes.empty() ? "" : "; "));
  if (clues.has(Signal::kTwoPorts))
    return only("nic.gin-merged", "two ports of a NIC, or NCCL_CROSS_NIC=0");
  return {{"versions.verbs-too-old", Likelihood::kPossible, nodes,
           "`ferry facts` says the highest MLX5 tag of libmlx5: below MLX5_1.25 it is this one"},
          {"nic.gin-merged", Likelihood::kPossible, nodes,
           "NCCL_DEBUG=INFO prints merged devices as mlx5_0+mlx5_1"}};
}

Hypotheses explain_peermem(const Clues& clues) {
  if (clues.has_peermem())
    return only("driver.peermem-legacy-path", "the module is loaded all the same");
  if (transport_failed(clues))
    return only("driver.peermem-missing", "the transport did not work afterwards");
  const std::string decides =
      "lsmod | grep peermem, on every node; where one NVLink node is all there "
      "is, the message is harmless";
  return {{"driver.peermem-missing",
           clues.lacks_peermem() ? Likelihood::kLikely : Likelihood::kPossible,
           clues.lacks_peermem() ? "the facts have no such module" : "", decides}};
}

Hypotheses explain_transport(const Clues& clues) {
  if (clues.has(Signal::kPeermemMissing) || clues.has(Signal::kGpuBuffers) ||
      clues.has(Signal::kDevxUar) || clues.has(Signal::kNoMlx5dv))
    return {};  // those lines say why
  return {{"driver.peermem-missing", Likelihood::kOpen, "", "lsmod | grep peermem, on every node"},
          {"hang.nvshmem-without-ibgda", Likelihood::kOpen, "",
           "`nvshmem-info -a` says whether IBGDA is compiled in"},
          {"container.devx", Likelihood::kOpen, "", "does it work in a privileged container?"}};
}

Hypotheses explain_gpu_buffers(const Clues& clues) {
  if (clues.has(Signal::kDevxUar)) return only("container.devx", "no mlx5dv_devx_uar either");
  if (clues.has(Signal::kPeermemMissing) && !clues.has_peermem())
    return only("driver.peermem-missing", "and no GPU buffer could be registered");
  return only("driver.gpu-buffers");
}

// "unable to create ah".
Hypotheses explain_address_handle(const Clues& clues) {
  Hypotheses found;
  const std::string version = clues.nvshmem_version();
  const bool is_old = !version.empty() && !is_at_least(version, "3.5.19");
  const bool is_infiniband = clues.link_layer() == "InfiniBand";
  if (clues.has(Signal::kZeroQpn))
    found.push_back({"boot.mixed-messages", Likelihood::kLikely,
                     "the remote queue pair number or GID prints as zero", ""});
  if (clues.lacks_nvlink())
    found.push_back(
        {"nic.no-nvlink", Likelihood::kPossible, "cards without NVLink", "ferry topo --links"});
  if (is_old && !is_infiniband) {
    const bool is_roce = clues.link_layer() == "Ethernet";
    found.push_back({"nic.address-handle", is_roce ? Likelihood::kLikely : Likelihood::kPossible,
                     "NVSHMEM " + version,
                     is_roce ? "" : "link_layer of the ports: Ethernet, it is this one"});
  }
  if (version.empty() && !is_infiniband)
    found.push_back({"nic.address-handle", Likelihood::kPossible, "",
                     "the version of NVSHMEM: before 3.5.19, it is this one"});
  if (!is_old || found.empty()) {
    found.push_back(
        {"nic.gid", Likelihood::kPossible, "",
         "the GID at NVSHMEM_IB_GID_INDEX: show_gids, or ferry doctor --only roce.gid"});
    found.push_back(
        {"nic.no-gid", Likelihood::kOpen, "", "does each RDMA interface have an address?"});
  }
  return found;
}

Hypotheses explain_traffic_class(const Clues& clues) {
  const std::string layer = clues.link_layer();
  const bool is_set = clues.has_setting("NVSHMEM_IB_TRAFFIC_CLASS");
  if (layer == "Ethernet")
    return {{"nic.gid", Likelihood::kPossible, "RoCE ports", "the GID at NVSHMEM_IB_GID_INDEX"},
            {"nic.address-handle", Likelihood::kOpen, "", "NVSHMEM before 3.5.19"}};
  if (layer == "InfiniBand" && is_set)
    return only("nic.traffic-class",
                "NVSHMEM_IB_TRAFFIC_CLASS=" + clues.setting("NVSHMEM_IB_TRAFFIC_CLASS") +
                    ", and the ports are InfiniBand");
  return {
      {"nic.traffic-class", Likelihood::kPossible, is_set ? "NVSHMEM_IB_TRAFFIC_CLASS is set" : "",
       "link_layer InfiniBand (ibv_devinfo) together with NVSHMEM_IB_TRAFFIC_CLASS, on any rank"},
      {"nic.gid", Likelihood::kOpen, "", "link_layer Ethernet"}};
}

// The system's error number decides: 110 no answer, 101 no way there, 22 nonsense at the other end.
Hypotheses explain_modify_qp(const Clues& clues) {
  Hypotheses found;
  const Sighting* sighting = clues.find(Signal::kModifyQp);
  const bool is_timeout = contains(lower(sighting->first->text), "timed out");
  if (sighting->values.contains("110") || is_timeout)
    found.push_back({"nic.gid", Likelihood::kLikely, "no answer (110)", ""});
  if (sighting->values.contains("101"))
    found.push_back({"nic.rails-apart", Likelihood::kLikely, "network unreachable (101)", ""});
  if (sighting->values.contains("22"))
    found.push_back({"boot.mixed-messages",
                     clues.has(Signal::kZeroQpn) ? Likelihood::kLikely : Likelihood::kPossible,
                     "invalid argument (22)", "remote queue pair number and GID zero in the log"});
  if (found.empty())
    for (const char* cause : {"nic.gid", "nic.rails-apart", "boot.mixed-messages"})
      found.push_back(
          {cause, Likelihood::kOpen, "", "the error number beside the message: 110, 101 or 22"});
  return found;
}

Hypotheses explain_no_mlx5dv(const Clues& clues) {
  if (clues.has_other_nics()) return only("nic.not-mlx5", "a NIC is driven by something else");
  if (clues.has_only_mlx5()) return {};  // one of several names that are tried
  return {{"nic.not-mlx5", Likelihood::kPossible, "",
           "readlink /sys/class/infiniband/*/device/driver: with mlx5_core the line is harmless"}};
}

// In the construction of a buffer: handles of another host, or of ranks in another order.
Hypotheses explain_resource_handle(const Clues& clues) {
  if (!clues.has(Signal::kBufferConstruction)) return {};
  const auto hosts = clues.num_hosts();
  const auto gpus = clues.gpus_per_host();
  if (hosts && *hosts > 1 && gpus && *gpus < 8)
    return only("memory.ipc-across-hosts",
                fmt::format("{} ranks on hosts of {} GPUs", clues.world_size().value_or(0), *gpus));
  if (hosts && *hosts == 1) return only("boot.rank-order", "all ranks are on one host");
  return {{"memory.ipc-across-hosts", Likelihood::kPossible, "",
           "do eight consecutive ranks span two hosts?"},
          {"boot.rank-order", Likelihood::kPossible, "",
           "hosts of eight GPUs: are ranks dealt host by host?"}};
}

Hypotheses explain_cu_mem_create(const Clues& clues) {
  const Sighting* sighting = clues.find(Signal::kCuMemCreate);
  if (contains(lower(sighting->first->text), "not permitted")) return only("memory.fabric-handles");
  return only("memory.gpu-full");
}

Hypotheses explain_limited_mpg(const Clues& clues) {
  const std::string visible = clues.setting("CUDA_VISIBLE_DEVICES");
  if (!visible.empty()) {
    const bool is_one = split(visible, ',').size() == 1;
    return only(is_one ? "process.shared-gpu" : "process.device-set-late",
                "CUDA_VISIBLE_DEVICES=" + visible);
  }
  return {{"process.shared-gpu", Likelihood::kPossible, "",
           "nvidia-smi while it runs: several processes on GPU 0"},
          {"process.device-set-late", Likelihood::kPossible, "",
           "is set_device called before the first CUDA call of each rank?"}};
}

Hypotheses explain_gib(const Clues& clues) {
  if (const Sighting* glibc = clues.find(Signal::kGlibcTooOld))
    return only("versions.glibc", *glibc->values.rbegin() + " not found");
  return only("container.gib");
}

Hypotheses explain_cooperative(const Clues& clues) {
  return only(clues.has(Signal::kBarrierFile) ? "limits.cooperative-barrier"
                                              : "limits.cooperative-grid");
}

Hypotheses explain_ferry_error(const Clues& clues) {
  return only("ferry.error", clues.find(Signal::kFerryError)->first->value);
}

// Device listings that name rocep devices.
Hypotheses explain_rocep(const Clues& clues) {
  const std::string prefix = clues.setting("NVSHMEM_HCA_PREFIX");
  if (prefix.starts_with("roce")) return {};  // the other way to make them known
  const Sighting* rocep = clues.find(Signal::kRocepName);
  const std::string names = join({rocep->values.begin(), rocep->values.end()}, ", ");
  if (clues.has(Signal::kMlx5Name))
    return {{"nic.names-rocep", Likelihood::kPossible, names + " beside mlx5 names",
             "ls /sys/class/infiniband: mixed names, it is this one"}};
  return only("nic.names-rocep", names);
}

Hypotheses explain_bandwidth(const Clues& clues) {
  const double seen = clues.find(Signal::kRdmaBandwidth)->largest;
  const auto rate = clues.nic_gbytes();
  // Half of a 400 Gb/s NIC's quarter: below it no NIC of a GPU machine is so slow.
  const double limit = rate.value_or(50.0) / 4;
  if (seen <= 0 || seen >= limit) return {};
  const std::string because =
      fmt::format("best RDMA figure {:.2f} GB/s, a quarter of the NIC's rate is {:.1f} GB/s{}",
                  seen, limit, rate ? "" : " if it is 400 Gb/s");
  const Likelihood likelihood = rate ? Likelihood::kLikely : Likelihood::kPossible;
  const std::string decides = "ferry nics --watch during the run: does only one NIC move?";
  const bool is_mapped = clues.has_setting("NVSHMEM_ENABLE_NIC_PE_MAPPING") ||
                         clues.has_setting("NVSHMEM_HCA_PE_MAPPING");
  const bool has_lists =
      clues.has_setting("DEEP_EP_DEVICE_TO_HCA_MAPPING") || clues.has_setting("NVSHMEM_HCA_LIST");
  if (is_mapped && !has_lists)
    return {{"nic.pe-mapping", likelihood, because, decides},
            {"nic.one-nic", Likelihood::kPossible, "", decides}};
  return {{"nic.one-nic", likelihood, because, decides}};
}

struct Rule {
  Signal signal;
  Hypotheses (*explain)(const Clues&);
};

constexpr Rule kRules[] = {
    {Signal::kGinNone, explain_gin_none},
    {Signal::kPeermemMissing, explain_peermem},
    {Signal::kTransportFailed, explain_transport},
    {Signal::kGpuBuffers, explain_gpu_buffers},
    {Signal::kDevxUar, [](const Clues&) { return only("container.devx"); }},
    {Signal::kAddressHandle, explain_address_handle},
    {Signal::kTrafficClassSyndrome, explain_traffic_class},
    {Signal::kModifyQp, explain_modify_qp},
    {Signal::kNoMlx5dv, explain_no_mlx5dv},
    {Signal::kNoGid, [](const Clues&) { return only("nic.no-gid"); }},
    {Signal::kResourceHandle, explain_resource_handle},
    {Signal::kCuMemCreate, explain_cu_mem_create},
    {Signal::kLimitedMpg, explain_limited_mpg},
    {Signal::kGibMissing, explain_gib},
    {Signal::kCooperativeLaunch, explain_cooperative},
    {Signal::kDeallocPd, [](const Clues&) { return only("teardown.dealloc-pd"); }},
    {Signal::kFerryError, explain_ferry_error},
    {Signal::kRocepName, explain_rocep},
    {Signal::kRdmaBandwidth, explain_bandwidth},
    {Signal::kDispatchTimeout, explain_timeout},
    {Signal::kKernelTimeout, explain_timeout},
    {Signal::kMetaTimeout, explain_timeout},
    {Signal::kCounterMissing, explain_timeout},
};

}  // namespace

std::vector<Hypothesis> explain(Signal signal, const Clues& clues) {
  for (const Rule& rule : kRules)
    if (rule.signal == signal) return rule.explain(clues);
  return {};
}

}  // namespace ferry::ops
