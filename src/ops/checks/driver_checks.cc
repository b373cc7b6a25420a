#include <fmt/format.h>

#include <algorithm>

#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// From this version on NVSHMEM finds a way without the driver's option and without gdrdrv.
constexpr const char* kFallbackVersion = "3.4.5";

bool is_nvshmem_older_than(const Facts& facts, const char* version) {
  const LibraryFacts* library = effective_nvshmem(facts);
  return library != nullptr && library->version.is_known() &&
         !is_at_least(library->version.value(), version);
}

// GPUDirect RDMA without a peer-memory module: the kernel's dmabuf with the open GPU modules.
bool has_dmabuf(const Facts& facts) {
  return facts.driver.flavour.is("open") && is_at_least(facts.host.kernel.value_or("0"), "5.12");
}

Judgement judge_driver(const Facts& facts, const DoctorOptions&) {
  if (facts.driver.version.is_known())
    return ok(fmt::format("{} ({} modules), serves CUDA {}", facts.driver.version.value(),
                          facts.driver.flavour.value_or("?"),
                          facts.driver.cuda_version.value_or("of unknown version")));
  if (!has_gpu(facts)) return not_applicable("no NVIDIA GPU");
  if (facts.driver.version.is_unknown() || is_in_container(facts))
    return unknown("/proc/driver/nvidia/version is not readable here",
                   "run ferry facts on the host itself, outside the container");
  return fail(fmt::format("{} GPUs on the PCI bus, no driver loaded", facts.gpu_list().size()));
}

Judgement judge_options(const Facts& facts, const DoctorOptions&) {
  if (!has_mlx5(facts) || !has_gpu(facts)) return not_applicable("no mlx5 device beside a GPU");
  const Fact<std::string>& running = facts.driver.running_registry_dwords;
  std::string configured;
  for (const DriverOption& option : facts.driver.configured)
    if (has_peer_mapping(option.text)) configured = option.file;
  if (running.is_unknown() || facts.driver.version.is_absent())
    return unknown("/proc/driver/nvidia/params is not readable",
                   "cat /proc/driver/nvidia/params on the host");
  const std::string value = running.value_or("");
  if (has_peer_mapping(value)) {
    if (configured.empty() && !is_in_container(facts))
      return warn(
          fmt::format("RegistryDwords '{}' is in force, but no file of /etc/modprobe.d says so",
                      value),
          "ferry install --stack deepep --target bare-metal --only driver-option");
    return ok(fmt::format("RegistryDwords '{}' is in force", value));
  }
  if (!configured.empty())
    return fail(
        fmt::format("{} sets it, the running driver has RegistryDwords '{}'", configured, value),
        "update-initramfs -u, then reboot: the option is read when the module loads");
  const std::string seen = fmt::format(
      "RegistryDwords '{}' of the running driver lacks "
      "PeerMappingOverride=1, and no file sets it",
      value);
  if (is_nvshmem_older_than(facts, kFallbackVersion) && !is_loaded(facts, "gdrdrv"))
    return fail(seen + fmt::format("; NVSHMEM {} has no other way without gdrdrv",
                                   effective_nvshmem(facts)->version.value()));
  return warn(seen);
}

Judgement judge_flavour(const Facts& facts, const DoctorOptions&) {
  if (!facts.driver.version.is_known() || !has_hca(facts))
    return not_applicable("no GPU driver beside an RDMA device");
  const std::string flavour = facts.driver.flavour.value_or("");
  if (flavour == "open") return ok("open kernel modules");
  if (has_peermem(facts)) return ok("proprietary kernel modules, with a peer-memory module");
  return fail("proprietary kernel modules and no peer-memory module");
}

Judgement judge_peermem(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts) || !has_mlx5(facts)) return not_applicable("no mlx5 device beside a GPU");
  if (has_peermem(facts)) {
    const auto version = facts.modules.versions.find("nvidia_peermem");
    if (version != facts.modules.versions.end())
      return ok("nvidia_peermem " + version->second + " (/sys/module)");
    return ok(facts.modules.legacy_peermem.value_or("in /proc/modules"));
  }
  if (facts.modules.loaded.is_unknown())
    return unknown(facts.modules.loaded.reason(), "lsmod | grep peermem on the host");
  if (has_dmabuf(facts))
    return warn(fmt::format("not loaded; kernel {} with open modules can use dmabuf instead",
                            facts.host.kernel.value_or("")));
  return fail("not loaded (/proc/modules, /sys/module), and no dmabuf either");
}

Judgement judge_peermem_path(const Facts& facts, const DoctorOptions&) {
  const LibraryFacts* library = effective_nvshmem(facts);
  if (!has_peermem(facts) || library == nullptr) return not_applicable("no module, or no NVSHMEM");
  if (facts.modules.legacy_peermem.is_known()) return ok(facts.modules.legacy_peermem.value());
  if (!library->version.is_known())
    return unknown("the version of " + library->path + " is not known", "nvshmem-info -a");
  if (is_at_least(library->version.value(), "3.3.20"))
    return ok(fmt::format("NVSHMEM {} also looks at /sys/module/nvidia_peermem/version",
                          library->version.value()));
  return warn(
      fmt::format("NVSHMEM {} looks only at /sys/kernel/mm/memory_peers, which is not there",
                  library->version.value()));
}

Judgement judge_peermem_boot(const Facts& facts, const DoctorOptions&) {
  if (!is_loaded(facts, "nvidia_peermem")) return not_applicable("the module is not loaded");
  if (is_in_container(facts)) return not_applicable("inside a container; the node decides");
  const auto& names = facts.modules.at_boot;
  if (std::find(names.begin(), names.end(), "nvidia_peermem") != names.end())
    return ok("in /etc/modules-load.d");
  return warn("loaded now, but named by no file of modules-load.d");
}

Judgement judge_route(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts) || !has_hca(facts)) return not_applicable("no RDMA device beside a GPU");
  if (has_peermem(facts)) return ok("over the peer-memory module");
  if (has_dmabuf(facts))
    return ok(fmt::format("over dmabuf: open modules, kernel {}", facts.host.kernel.value_or("")));
  if (facts.modules.loaded.is_unknown() || !facts.driver.flavour.is_known())
    return unknown("modules or the driver's flavour are not readable",
                   "run ferry doctor on the host itself");
  return fail(fmt::format("no peer-memory module; {} modules on kernel {} have no dmabuf",
                          facts.driver.flavour.value(), facts.host.kernel.value_or("?")));
}

Judgement judge_gdrdrv(const Facts& facts, const DoctorOptions&) {
  const bool is_needed_by_handler =
      is_nvshmem_older_than(facts, kFallbackVersion) &&
      !has_peer_mapping(facts.driver.running_registry_dwords.value_or(""));
  if (!has_efa(facts) && !is_needed_by_handler)
    return not_applicable("neither EFA nor an NVSHMEM before 3.4.5 without the driver option");
  const auto& nodes = facts.device_nodes;
  const bool has_node = std::find(nodes.begin(), nodes.end(), "/dev/gdrdrv") != nodes.end();
  if (has_node) return ok("/dev/gdrdrv is there");
  if (is_in_container(facts) && is_loaded(facts, "gdrdrv"))
    return fail("gdrdrv is loaded on the node, /dev/gdrdrv is not in this container",
                "mount /dev/gdrdrv into the container");
  return fail(is_loaded(facts, "gdrdrv") ? "loaded, but /dev/gdrdrv is missing" : "not loaded");
}

Judgement judge_fabric(const Facts& facts, const DoctorOptions&) {
  const std::vector<GpuFacts> gpus = facts.gpu_list();
  std::string wrong;
  bool is_any_known = false;
  for (const GpuFacts& gpu : gpus) {
    if (!gpu.fabric_state.is_known()) continue;
    is_any_known = true;
    if (gpu.fabric_state.value() != "completed")
      wrong +=
          fmt::format("{}GPU{} {}", wrong.empty() ? "" : ", ", gpu.index, gpu.fabric_state.value());
  }
  if (!wrong.empty()) return fail("fabric registration: " + wrong);
  if (is_any_known) return ok(fmt::format("completed on {} GPUs", gpus.size()));
  const bool is_unknown = std::any_of(
      gpus.begin(), gpus.end(), [](const GpuFacts& gpu) { return gpu.fabric_state.is_unknown(); });
  if (is_unknown)
    return unknown("the driver was not asked (no NVML)", "nvidia-smi -q | grep -A3 Fabric");
  return not_applicable("no NVSwitch fabric");
}

Judgement judge_iommu(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts)) return not_applicable("no GPU");
  if (facts.iommu_types.is_unknown())
    return unknown("/sys/kernel/iommu_groups: " + facts.iommu_types.reason(), "cat /proc/cmdline");
  if (facts.iommu_types.is_absent()) return ok("no IOMMU groups");
  std::string translating;
  for (const std::string& type : facts.iommu_types.value())
    if (type.starts_with("DMA")) translating = type;
  if (translating.empty())
    return ok("IOMMU groups of type " + join(facts.iommu_types.value(), ", "));
  return warn(
      fmt::format("IOMMU groups of type {} (/sys/kernel/iommu_groups/*/type)", translating));
}

Judgement judge_acs(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts) || !has_hca(facts)) return not_applicable("no RDMA device beside a GPU");
  std::vector<std::string> redirecting;
  std::size_t num_unknown = 0;
  std::size_t num_bridges = 0;
  for (const PciDevice& device : facts.pci) {
    if (device.redirects.is_absent()) continue;
    ++num_bridges;
    if (device.redirects.is_unknown()) ++num_unknown;
    if (device.redirects.is(true)) redirecting.push_back(device.address);
  }
  if (!redirecting.empty()) return warn("ACS redirects requests on " + join(redirecting, ", "));
  if (num_unknown > 0)
    return unknown(fmt::format("{} of {} bridges show their config space to root only", num_unknown,
                               num_bridges),
                   "sudo ferry doctor --only pcie.acs");
  return ok(fmt::format("{} bridges above GPUs and NICs redirect nothing", num_bridges));
}

constexpr Check kChecks[] = {
    {"driver.loaded", "GPU driver", Stack::kBoth, "GPUs on the PCI bus and no driver: fail",
     "without the driver no CUDA program runs", "install the driver, then: nvidia-smi", "B9",
     judge_driver},
    {"driver.options", "driver option PeerMappingOverride", Stack::kDeepEp,
     "the running driver (/proc/driver/nvidia/params) against /etc/modprobe.d: set in a file but "
     "not "
     "running: fail, a reboot is due; absent: fail with NVSHMEM before 3.4.5 and no gdrdrv, else "
     "warn",
     "IBGDA's GPU NIC handler rings the NIC's doorbell from a kernel, which this option permits; "
     "newer "
     "NVSHMEM falls back to a CPU-assisted handler. NVSHMEM's log decides: 'NIC handler will be "
     "GPU'",
     "ferry install --stack deepep --target bare-metal --only driver-option", "C4 S4",
     judge_options},
    {"driver.flavour", "kernel module flavour", Stack::kBoth,
     "proprietary modules and no peer-memory module: fail",
     "dmabuf needs the open modules; without them only nvidia_peermem gives NICs access to GPU "
     "memory",
     "modprobe nvidia_peermem, or install the open kernel modules", "C1 C11", judge_flavour},
    {"peermem.loaded", "nvidia_peermem", Stack::kBoth,
     "found by any of /sys/module, /proc/modules or the legacy path: ok; absent: warn where dmabuf "
     "can "
     "serve, else fail",
     "'neither nv_peer_mem, or nvidia_peermem detected': NVSHMEM's IBGDA transport does not start",
     "modprobe nvidia_peermem && echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf",
     "C1", judge_peermem},
    {"peermem.path", "where NVSHMEM looks for nvidia_peermem", Stack::kDeepEp,
     "the module is loaded, its legacy path is absent and NVSHMEM is older than 3.3.20: warn",
     "such an NVSHMEM reports the module as missing although it is loaded",
     "use NVSHMEM 3.4.5 or newer; the module itself is fine", "C2", judge_peermem_path},
    {"peermem.at-boot", "nvidia_peermem after a reboot", Stack::kBoth,
     "loaded now but named by no file of modules-load.d: warn",
     "the module is gone after the next reboot",
     "echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf", "C10", judge_peermem_boot},
    {"gpudirect.route", "GPUDirect RDMA", Stack::kBoth,
     "a peer-memory module, or dmabuf (open modules and kernel 5.12 or newer): ok; neither: fail",
     "NICs cannot read or write GPU memory, so nothing goes between nodes without a host copy",
     "modprobe nvidia_peermem, or a kernel of 5.12 or newer with the open modules", "C1 C9 C11",
     judge_route},
    {"gdrdrv.loaded", "gdrdrv", Stack::kDeepEp,
     "needed for EFA, and by NVSHMEM before 3.4.5 without the driver option: absent is fail",
     "the CPU-assisted NIC handler and EFA's device initiation map GPU memory through it",
     "modprobe gdrdrv, from the package gdrdrv-dkms", "C6", judge_gdrdrv},
    {"nvlink.fabric", "NVLink fabric registration", Stack::kBoth,
     "any state but completed on a machine with NVSwitches: fail",
     "with a stale fabric state multicast and fabric mappings fail: cuMemMap 401",
     "systemctl restart nvidia-fabricmanager, or reboot", "C5 L1", judge_fabric},
    {"iommu.translation", "IOMMU", Stack::kBoth,
     "translating groups (DMA, DMA-FQ): warn; identity or none: ok",
     "peer-to-peer traffic through a translating IOMMU crawls or hangs", "boot with iommu=pt", "C8",
     judge_iommu},
    {"pcie.acs", "PCIe access control (ACS)", Stack::kBoth,
     "request or completion redirect on a bridge above a GPU or NIC: warn; unreadable: unknown",
     "redirected peer-to-peer traffic goes through the root complex",
     "disable ACS in the firmware, or with setpci on those bridges at boot", "C8", judge_acs},
};

}  // namespace

std::span<const Check> driver_checks() { return kChecks; }

}  // namespace ferry::ops
