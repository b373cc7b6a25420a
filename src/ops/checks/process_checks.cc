#include <fmt/format.h>

#include <algorithm>

#include "base/human.hpp"
#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr int kCapIpcLock = 14;
constexpr int kCapSysPtrace = 19;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Judgement judge_memlock(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable("no RDMA device");
  const ProcessFacts& process = facts.process;
  if (!process.memlock_soft_bytes.is_known())
    return unknown("/proc/self/limits is not readable", "ulimit -l");
  const std::int64_t limit = process.memlock_soft_bytes.value();
  if (limit < 0) return ok("unlimited");
  if (limit >= kGiB) return ok(human_bytes(limit));
  if (!process.effective_capabilities.is_known())
    return unknown(human_bytes(limit) + ", and the capabilities are not readable",
                   "grep CapEff /proc/self/status");
  if (process.has_capability(kCapIpcLock))
    return ok(human_bytes(limit) + ", lifted by CAP_IPC_LOCK");
  std::string seen = fmt::format(
      "{} locked at most (/proc/self/limits), CAP_IPC_LOCK is not in effect", human_bytes(limit));
  if (process.uid.value_or(0) != 0 && is_in_container(facts))
    return fail(
        seen + fmt::format(", uid {}", process.uid.value()),
        "LimitMEMLOCK=infinity of the container runtime; adding IPC_LOCK to a Pod that does not "
        "run as root does nothing");
  return fail(seen);
}

Judgement judge_nodes(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable("no RDMA device");
  std::vector<std::string> missing;
  for (const HcaFacts& hca : facts.hca_list()) {
    if (hca.has_device_node.is(false))
      missing.push_back(
          fmt::format("/dev/infiniband/{} of {}", hca.uverbs.value_or("?"), hca.name));
    if (hca.has_device_node.is_unknown() && hca.uverbs.is_unknown())
      return unknown(hca.name + ": " + hca.uverbs.reason(), "ls -l /dev/infiniband");
  }
  if (!missing.empty()) return fail("missing: " + join(missing, ", "));
  const auto& nodes = facts.device_nodes;
  if (std::find(nodes.begin(), nodes.end(), "/dev/infiniband/rdma_cm") == nodes.end())
    return warn("/dev/infiniband/rdma_cm is missing");
  return ok("one for each device, and rdma_cm");
}

Judgement judge_shm(const Facts& facts, const DoctorOptions&) {
  const Fact<std::int64_t>& total = facts.process.shm_total_bytes;
  if (total.is_absent()) return fail("/dev/shm is not mounted");
  if (total.is_unknown()) return unknown("/dev/shm: " + total.reason(), "df -h /dev/shm");
  const auto num_ranks =
      static_cast<std::int64_t>(std::max<std::size_t>(facts.gpu_list().size(), 1));
  const std::string seen =
      fmt::format("/dev/shm has {}, for {} ranks", human_bytes(total.value()), num_ranks);
  if (total.value() < 64 * kMiB * num_ranks) return fail(seen);
  return total.value() < kGiB ? warn(seen) : ok(seen);
}

Judgement judge_allocator(const Facts& facts, const DoctorOptions&) {
  const ProcessFacts& process = facts.process;
  const std::string config =
      process.variable("PYTORCH_CUDA_ALLOC_CONF") + process.variable("PYTORCH_ALLOC_CONF");
  if (!contains(config, "expandable_segments:True")) return ok("expandable segments are off");
  if (!process.effective_capabilities.is_known() || !process.seccomp.is_known())
    return unknown("expandable segments are on; the process's rights are not readable",
                   "grep -E 'CapEff|Seccomp' /proc/self/status");
  if (process.has_capability(kCapSysPtrace)) return ok("expandable segments, with CAP_SYS_PTRACE");
  if (process.seccomp.value() == 0 && !is_in_container(facts))
    return ok("expandable segments, no seccomp filter");
  return warn("expandable segments in a container without CAP_SYS_PTRACE");
}

// One name, prefix or "=exact" of an interface list.
bool matches(const std::string& entry, const std::string& name) {
  return entry.starts_with("=") ? name == entry.substr(1) : name.starts_with(entry);
}

Judgement judge_interfaces(const Facts& facts, const DoctorOptions&) {
  std::vector<std::string> faults;
  std::string set;
  for (const char* variable :
       {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const std::string list = facts.process.variable(variable);
    if (list.empty() || list.starts_with("^")) continue;
    set += fmt::format("{}{}={}", set.empty() ? "" : ", ", variable, list);
    std::string fault = fmt::format("{}={}: no such interface", variable, list);
    for (const std::string& entry : split(list, ',')) {
      for (const InterfaceFacts& interface : facts.interfaces) {
        if (entry.empty() || !matches(entry, interface.name)) continue;
        const bool is_bridge = interface.is_virtual && (interface.name.starts_with("docker") ||
                                                        interface.name.starts_with("veth"));
        if (is_bridge) {
          fault = fmt::format("{}={}: {} is a container bridge", variable, list, interface.name);
        } else if (interface.state.is("down")) {
          fault = fmt::format("{}={}: {} is down", variable, list, interface.name);
        } else {
          fault.clear();
        }
        break;
      }
      if (fault.empty()) break;
    }
    if (!fault.empty()) faults.push_back(fault);
  }
  if (!faults.empty()) return fail(join(faults, "; "));
  return set.empty() ? ok("no interface is chosen by a variable") : ok(set);
}

Judgement judge_family(const Facts& facts, const DoctorOptions&) {
  bool has_ipv4 = false;
  bool has_ipv6 = false;
  for (const InterfaceFacts& interface : facts.interfaces) {
    if (interface.is_virtual) continue;
    if (interface.has_ipv4.is_unknown())
      return unknown(interface.name + ": " + interface.has_ipv4.reason(), "ip address");
    has_ipv4 = has_ipv4 || interface.has_ipv4.is(true);
    has_ipv6 = has_ipv6 || interface.has_ipv6.is(true);
  }
  const std::string family = facts.process.variable("NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY");
  if (family == "AF_INET6" && !has_ipv6)
    return fail("AF_INET6 is asked for, no interface has a global IPv6 address");
  if (family != "AF_INET6" && !has_ipv4 && has_ipv6)
    return fail("only IPv6 addresses, and the bootstrap asks for IPv4",
                "export NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=AF_INET6");
  return ok(family.empty() ? "IPv4" : family);
}

Judgement judge_gib(const Facts& facts, const DoctorOptions&) {
  const ProcessFacts& process = facts.process;
  const bool is_gke = facts.host.cloud.is("gcp") && process.container.is("kubernetes");
  const bool is_asked = lower(process.variable("NCCL_NET")) == "gib";
  if (!is_gke && !is_asked) return not_applicable("not GKE, and NCCL_NET is not gIB");
  const auto plugins = libraries_of(facts, "nccl-net");
  const bool is_on_path =
      std::any_of(plugins.begin(), plugins.end(), [](const LibraryFacts* plugin) {
        return plugin->found_by == "LD_LIBRARY_PATH" || plugin->found_by == "loader";
      });
  if (is_asked && !is_on_path)
    return fail(facts.software.gib.is_known() ? "NCCL_NET=gIB, and " + facts.software.gib.value() +
                                                    "/lib64 is not on LD_LIBRARY_PATH"
                                              : "NCCL_NET=gIB, and no gIB folder is mounted");
  if (!has_hca(facts)) return not_applicable("no RDMA device in this Pod");
  std::vector<std::string> unset;
  for (const char* name :
       {"NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE", "NCCL_TUNER_CONFIG_PATH"})
    if (process.variable(name).empty()) unset.emplace_back(name);
  if (!is_on_path || !unset.empty())
    return fail("gIB is not set up: " +
                (is_on_path ? join(unset, ", ") + " unset"
                            : std::string("its plugin is not on LD_LIBRARY_PATH")));
  return ok("gIB: " + facts.software.gib.value_or("on the loader's path"));
}

Judgement judge_glibc(const Facts& facts, const DoctorOptions&) {
  const auto plugins = libraries_of(facts, "nccl-net");
  if (plugins.empty()) return not_applicable("no network plugin of NCCL");
  if (!facts.host.glibc.is_known()) return unknown(facts.host.glibc.reason(), "ldd --version");
  for (const LibraryFacts* plugin : plugins) {
    if (!plugin->glibc_need.is_known()) continue;
    const std::string need = after_mark(*plugin->glibc_need, "_");
    if (compare_versions(need, facts.host.glibc.value()) > 0)
      return fail(fmt::format("{} needs GLIBC_{}, this container has {}", plugin->path, need,
                              facts.host.glibc.value()));
  }
  return ok("glibc " + facts.host.glibc.value() + " serves every plugin");
}

Judgement judge_efa(const Facts& facts, const DoctorOptions&) {
  if (!has_efa(facts)) return not_applicable("no EFA device");
  std::vector<std::string> missing;
  const auto version = facts.modules.versions.find("efa");
  if (version == facts.modules.versions.end()) {
    missing.emplace_back("the efa module's version is not readable");
  } else if (!is_at_least(version->second, "3.3.0")) {
    missing.push_back("efa " + version->second + ", device initiation needs 3.3.0");
  }
  if (!has_peer_mapping(facts.driver.running_registry_dwords.value_or("")))
    missing.emplace_back("PeerMappingOverride is not set");
  bool has_counters = false;
  for (const LibraryFacts* library : libraries_of(facts, "efa"))
    has_counters = has_counters || contains(join(library->symbols, " "), "efadv_create_comp_cntr");
  if (!has_counters) missing.emplace_back("libefa has no completion counters");
  if (!facts.software.efa_folder.is_known()) missing.emplace_back("no /opt/amazon/efa");
  if (facts.process.variable("NCCL_GIN_TYPE") != "5")
    missing.emplace_back("NCCL_GIN_TYPE is not 5");
  return missing.empty() ? ok("all that EFA's device initiation needs") : warn(join(missing, "; "));
}

constexpr Check kChecks[] = {
    {"limits.memlock", "locked memory", Stack::kBoth,
     "below 1 GiB and CAP_IPC_LOCK (bit 14 of CapEff) not in effect: fail",
     "'ibv_reg_mr: cannot allocate memory', or a silent fall back to TCP",
     "ulimit -l unlimited: memlock in /etc/security/limits.conf, or LimitMEMLOCK=infinity of the "
     "service",
     "N2", judge_memlock},
    {"dev.infiniband", "device nodes of RDMA devices", Stack::kBoth,
     "no uverbs node for a device: fail; no rdma_cm: warn",
     "'cannot allocate mlx5dv_devx_uar': the device is seen and cannot be opened",
     "mount all of /dev/infiniband into the container", "N1", judge_nodes},
    {"shm.size", "/dev/shm", Stack::kBoth, "below 64 MiB per rank: fail; below 1 GiB: warn",
     "'Error while creating shared memory segment': NCCL's and torch's shared memory lies there",
     "mount -o remount,size=16G /dev/shm, or --shm-size=16g or --ipc=host of the container", "N3",
     judge_shm},
    {"allocator.expandable", "expandable segments", Stack::kBoth,
     "on in a process that may not use pidfd_getfd: warn",
     "'pidfd_getfd: Operation not permitted' when a peer opens the memory",
     "add CAP_SYS_PTRACE, or take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF", "N4",
     judge_allocator},
    {"net.interface", "bootstrap interface", Stack::kBoth,
     "an interface that a variable names is missing, down or a container bridge: fail",
     "'No socket interface found', or a time-out while ranks meet",
     "name one that is up: ip -br link", "E1 E3", judge_interfaces},
    {"net.family", "bootstrap address family", Stack::kDeepEp,
     "the family that is asked for has no address: fail",
     "NVSHMEM's bootstrap asks for IPv4 unless told otherwise",
     "export NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY", "E2", judge_family},
    {"gke.gib", "gIB on GKE", Stack::kDeepEp,
     "NCCL_NET=gIB without its plugin, or a GKE Pod with RDMA devices and gIB not set up: fail",
     "NCCL's initialisation fails: 'network gIB not found'",
     "ferry env on this Pod writes the variables; mount the node's /home/kubernetes/bin/gib", "N5",
     judge_gib},
    {"gke.glibc", "glibc for the network plugin", Stack::kBoth,
     "a plugin needs a newer glibc than there is: fail",
     "'GLIBC_2.32 not found', and then 'network gIB not found'", "use a newer base image", "B11",
     judge_glibc},
    {"efa.stack", "EFA's requirements", Stack::kDeepEp,
     "what device initiation over EFA needs, each part: warn",
     "late failures such as 'cntr_open_ext: Function not implemented', or a slow CPU proxy",
     "efa 3.3.0, a libefa with completion counters, the driver option, gdrdrv, and NCCL_GIN_TYPE=5",
     "C6 C7 N7 N8 N9", judge_efa},
};

}  // namespace

std::span<const Check> process_checks() { return kChecks; }

}  // namespace ferry::ops
