#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/facts/fact.hpp"

namespace ferry::ops {

// What one host is, as far as a distributed MoE stack depends on it. Gathered once, from a live
// host or from a tree of its files, and from then on only read. Every struct lists its fields once,
// in `fields`: that list is its JSON form, in and out.
// An empty list means that there is none; where that cannot be known, the list is a Fact.

struct HostFacts {
  std::string name{};
  Fact<std::string> machine_id{};  // /etc/machine-id
  Fact<std::string> boot_id{};     // /proc/sys/kernel/random/boot_id
  Fact<std::string> os_id{};       // "debian", "ubuntu", "cos"
  Fact<std::string> os_version{};  // "12", "24.04"
  Fact<std::string> kernel{};      // "6.8.0-1010-gcp"
  Fact<std::string> arch{};        // "x86_64"
  Fact<std::string> glibc{};       // "2.36", from the C library's own file name or version string
  Fact<std::string> cmdline{};     // of the kernel
  Fact<std::string> vendor{};      // DMI: "Google"
  Fact<std::string> product{};     // DMI: "Google Compute Engine"
  Fact<std::string> cloud{};       // "gcp", "aws", "azure"; absent elsewhere
  Fact<std::int64_t> memory_total_bytes{};
  Fact<std::int64_t> memory_available_bytes{};
  int num_cpus = 0;  // online; 0: not known

  static void fields(auto& self, auto&& field) {
    field("name", self.name);
    field("machine_id", self.machine_id);
    field("boot_id", self.boot_id);
    field("os_id", self.os_id);
    field("os_version", self.os_version);
    field("kernel", self.kernel);
    field("arch", self.arch);
    field("glibc", self.glibc);
    field("cmdline", self.cmdline);
    field("vendor", self.vendor);
    field("product", self.product);
    field("cloud", self.cloud);
    field("memory_total_bytes", self.memory_total_bytes);
    field("memory_available_bytes", self.memory_available_bytes);
    field("num_cpus", self.num_cpus);
  }
};

// The process that gathers: what it may do is what a program started beside it may do.
struct ProcessFacts {
  Fact<std::string> container{};  // "docker", "podman", "kubernetes", "other"; absent: none
  Fact<std::int64_t> uid{};
  Fact<std::int64_t> effective_capabilities{};  // CapEff, a bit each
  Fact<std::int64_t> seccomp{};                 // 0 off, 1 strict, 2 filter
  Fact<std::int64_t> memlock_soft_bytes{};      // -1: unlimited
  Fact<std::int64_t> memlock_hard_bytes{};
  Fact<std::int64_t> shm_total_bytes{};  // /dev/shm
  Fact<std::int64_t> shm_free_bytes{};
  std::string environment_source{};                  // "process", or the file below the root
  std::map<std::string, std::string> environment{};  // the allow-list only (environment.hpp)

  [[nodiscard]] bool has_capability(int bit) const {
    return ((effective_capabilities.value_or(0) >> bit) & 1) != 0;
  }
  // The variable's value; empty where it is unset or empty.
  [[nodiscard]] std::string variable(const std::string& variable_name) const {
    const auto found = environment.find(variable_name);
    return found == environment.end() ? std::string() : found->second;
  }
  [[nodiscard]] bool has_variable(const std::string& variable_name) const {
    return environment.contains(variable_name);
  }

  static void fields(auto& self, auto&& field) {
    field("container", self.container);
    field("uid", self.uid);
    field("effective_capabilities", self.effective_capabilities);
    field("seccomp", self.seccomp);
    field("memlock_soft_bytes", self.memlock_soft_bytes);
    field("memlock_hard_bytes", self.memlock_hard_bytes);
    field("shm_total_bytes", self.shm_total_bytes);
    field("shm_free_bytes", self.shm_free_bytes);
    field("environment_source", self.environment_source);
    field("environment", self.environment);
  }
};

struct DriverOption {
  std::string file{};  // "/etc/modprobe.d/nvidia.conf"
  std::string text{};  // the line, as it stands

  static void fields(auto& self, auto&& field) {
    field("file", self.file);
    field("text", self.text);
  }
};

struct DriverFacts {
  Fact<std::string> version{};                  // "570.133.20"; absent: no driver is loaded
  Fact<std::string> flavour{};                  // "open" or "proprietary"
  Fact<std::string> cuda_version{};             // newest CUDA that the driver serves: "12.8"
  Fact<std::string> running_registry_dwords{};  // RegistryDwords of /proc/driver/nvidia/params
  Fact<bool> running_stream_mem_ops{};          // EnableStreamMemOPs
  std::vector<DriverOption> configured{};       // "options nvidia" lines of modprobe.d
  Fact<std::string> fabric_manager{};           // version of the installed service; absent: none

  static void fields(auto& self, auto&& field) {
    field("version", self.version);
    field("flavour", self.flavour);
    field("cuda_version", self.cuda_version);
    field("running_registry_dwords", self.running_registry_dwords);
    field("running_stream_mem_ops", self.running_stream_mem_ops);
    field("configured", self.configured);
    field("fabric_manager", self.fabric_manager);
  }
};

struct KernelModules {
  Fact<std::vector<std::string>> loaded{};        // names in /proc/modules and /sys/module
  std::map<std::string, std::string> versions{};  // of those below /sys/module that say one
  std::vector<std::string> at_boot{};             // names in modules-load.d and /etc/modules
  Fact<std::string> legacy_peermem{};             // the legacy path that says its version
  Fact<std::vector<std::string>> available{};     // on disk for the running kernel, RDMA ones

  static void fields(auto& self, auto&& field) {
    field("loaded", self.loaded);
    field("versions", self.versions);
    field("at_boot", self.at_boot);
    field("legacy_peermem", self.legacy_peermem);
    field("available", self.available);
  }
};

struct NvLink {
  int link = 0;
  bool is_active = false;
  std::string peer{};      // PCI address of the other end, "" if not known
  bool is_switch = false;  // the other end is an NVSwitch

  static void fields(auto& self, auto&& field) {
    field("link", self.link);
    field("is_active", self.is_active);
    field("peer", self.peer);
    field("is_switch", self.is_switch);
  }
};

struct GpuFacts {
  int index = 0;      // as CUDA counts in PCI order
  std::string pci{};  // "0000:8f:00.0", lower case
  Fact<std::string> name{};
  Fact<std::string> uuid{};
  Fact<std::string> compute_capability{};  // "9.0"
  Fact<std::int64_t> memory_bytes{};
  Fact<bool> is_mig{};
  Fact<std::vector<NvLink>> nvlinks{};
  Fact<std::string> fabric_state{};    // "completed", "in-progress", "not-started"; absent: none
  Fact<std::string> fabric_cluster{};  // cluster UUID, all zero on a single host
  Fact<std::int64_t> fabric_clique{};

  static void fields(auto& self, auto&& field) {
    field("index", self.index);
    field("pci", self.pci);
    field("name", self.name);
    field("uuid", self.uuid);
    field("compute_capability", self.compute_capability);
    field("memory_bytes", self.memory_bytes);
    field("is_mig", self.is_mig);
    field("nvlinks", self.nvlinks);
    field("fabric_state", self.fabric_state);
    field("fabric_cluster", self.fabric_cluster);
    field("fabric_clique", self.fabric_clique);
  }
};

struct Gid {
  int index = 0;
  std::string address{};  // "0000:0000:0000:0000:0000:ffff:0a00:0001"
  std::string type{};     // "IB/RoCE v1", "RoCE v2"
  std::string netdev{};

  static void fields(auto& self, auto&& field) {
    field("index", self.index);
    field("address", self.address);
    field("type", self.type);
    field("netdev", self.netdev);
  }
};

struct PortFacts {
  int number = 1;
  Fact<std::string> state{};       // "ACTIVE", "DOWN", "INIT"
  Fact<std::string> phys_state{};  // "LinkUp", "Disabled"
  Fact<std::string> link_layer{};  // "InfiniBand", "Ethernet"
  Fact<double> rate_gbps{};
  Fact<std::int64_t> traffic_class{};              // tc/<port>/traffic_class; absent: not set
  std::vector<Gid> gids{};                         // those that are not all zero
  std::map<std::string, std::int64_t> counters{};  // as the kernel counts: data in 4-byte words

  static void fields(auto& self, auto&& field) {
    field("number", self.number);
    field("state", self.state);
    field("phys_state", self.phys_state);
    field("link_layer", self.link_layer);
    field("rate_gbps", self.rate_gbps);
    field("traffic_class", self.traffic_class);
    field("gids", self.gids);
    field("counters", self.counters);
  }
};

struct HcaFacts {
  std::string name{};          // "mlx5_0", "rocep145s0"
  Fact<std::string> driver{};  // "mlx5_core", "efa"
  Fact<std::string> pci{};
  Fact<std::string> firmware{};
  Fact<std::string> board{};     // board_id
  Fact<std::string> guid{};      // node_guid
  Fact<bool> is_virtual{};       // a virtual function: device/physfn is there
  Fact<std::string> uverbs{};    // "uverbs0"
  Fact<bool> has_device_node{};  // /dev/infiniband/<uverbs>
  std::vector<std::string> netdevs{};
  Fact<std::int64_t> netdev_mtu{};  // the smallest of them
  std::vector<PortFacts> ports{};

  static void fields(auto& self, auto&& field) {
    field("name", self.name);
    field("driver", self.driver);
    field("pci", self.pci);
    field("firmware", self.firmware);
    field("board", self.board);
    field("guid", self.guid);
    field("is_virtual", self.is_virtual);
    field("uverbs", self.uverbs);
    field("has_device_node", self.has_device_node);
    field("netdevs", self.netdevs);
    field("netdev_mtu", self.netdev_mtu);
    field("ports", self.ports);
  }
};

struct PciDevice {
  std::string address{};
  std::string vendor{};  // "0x10de"
  std::string device{};
  std::string pci_class{};          // "0x030200"
  Fact<std::int64_t> numa_node{};   // absent: the machine has one, or does not say (-1)
  std::vector<std::string> path{};  // addresses from the root port to the device's own
  Fact<std::string> driver{};
  Fact<bool> redirects{};  // ACS sends peer-to-peer requests upward (bridges only)

  static void fields(auto& self, auto&& field) {
    field("address", self.address);
    field("vendor", self.vendor);
    field("device", self.device);
    field("class", self.pci_class);
    field("numa_node", self.numa_node);
    field("path", self.path);
    field("driver", self.driver);
    field("redirects", self.redirects);
  }
};

struct InterfaceFacts {
  std::string name{};
  Fact<std::string> state{};  // operstate: "up", "down", "unknown"
  Fact<std::int64_t> mtu{};
  bool is_virtual = false;  // docker0, veth*, ...: no device behind it
  Fact<bool> has_ipv4{};
  Fact<bool> has_ipv6{};  // beyond link-local
  bool has_default_route = false;
  Fact<std::int64_t> rx_bytes{};
  Fact<std::int64_t> tx_bytes{};

  static void fields(auto& self, auto&& field) {
    field("name", self.name);
    field("state", self.state);
    field("mtu", self.mtu);
    field("is_virtual", self.is_virtual);
    field("has_ipv4", self.has_ipv4);
    field("has_ipv6", self.has_ipv6);
    field("has_default_route", self.has_default_route);
    field("rx_bytes", self.rx_bytes);
    field("tx_bytes", self.tx_bytes);
  }
};

struct ToolkitFacts {
  std::string path{};           // "/usr/local/cuda-12.9"
  Fact<std::string> version{};  // "12.9.1"
  bool has_nvcc = false;
  bool has_cccl_folder = false;  // include/cccl, where CUDA 13 keeps cuda/std
  bool is_default = false;       // /usr/local/cuda leads here

  static void fields(auto& self, auto&& field) {
    field("path", self.path);
    field("version", self.version);
    field("has_nvcc", self.has_nvcc);
    field("has_cccl_folder", self.has_cccl_folder);
    field("is_default", self.is_default);
  }
};

// One shared library that a stack loads, wherever it may come from.
struct LibraryFacts {
  std::string family{};         // "nvshmem", "nccl", "mlx5", "ibverbs", "efa", "gdrapi", "nccl-net"
  std::string path{};           // as found
  std::string file{};           // with links resolved
  std::string found_by{};       // "LD_PRELOAD", "LD_LIBRARY_PATH", "loader", "python", "prefix"
  Fact<std::string> version{};  // from its strings or its file name
  Fact<std::string> highest_tag{};     // highest MLX5_1.x version tag it defines
  Fact<std::string> glibc_need{};      // highest GLIBC_ tag it needs
  std::vector<std::string> symbols{};  // those of interest that it exports
  bool has_ibgda = false;              // nvshmem: the IBGDA transport lies beside it
  bool has_headers = false;  // nvshmem: include/nvshmem.h and lib/libnvshmem_device.a beside it

  static void fields(auto& self, auto&& field) {
    field("family", self.family);
    field("path", self.path);
    field("file", self.file);
    field("found_by", self.found_by);
    field("version", self.version);
    field("highest_tag", self.highest_tag);
    field("glibc_need", self.glibc_need);
    field("symbols", self.symbols);
    field("has_ibgda", self.has_ibgda);
    field("has_headers", self.has_headers);
  }
};

struct PythonPackage {
  std::string name{};  // normalised: lower case, '-'
  std::string version{};
  std::string path{};               // the site-packages folder
  std::vector<std::string> pins{};  // "nvidia-nccl-cu12==2.27.5": exact requirements on the others

  static void fields(auto& self, auto&& field) {
    field("name", self.name);
    field("version", self.version);
    field("path", self.path);
    field("pins", self.pins);
  }
};

// A compiled expert-parallel extension: deep_ep_cpp, uccl, ...
struct ExtensionFacts {
  std::string path{};
  std::vector<std::string> needed{};  // DT_NEEDED
  std::string runpath{};
  std::vector<std::string> archs{};  // "sm_90", "compute_100": in its fat binaries
  std::vector<std::string>
      undefined{};           // nvshmem*, nccl*, _ZN*deep_ep* symbols it expects elsewhere
  bool has_nvshmem = false;  // device or host half of NVSHMEM is in it or expected
  Fact<std::string> nvshmem_version{};  // of the half that was linked in
  bool has_ibgda = false;               // the IBGDA device state is in it

  static void fields(auto& self, auto&& field) {
    field("path", self.path);
    field("needed", self.needed);
    field("runpath", self.runpath);
    field("archs", self.archs);
    field("undefined", self.undefined);
    field("has_nvshmem", self.has_nvshmem);
    field("nvshmem_version", self.nvshmem_version);
    field("has_ibgda", self.has_ibgda);
  }
};

// A source tree of DeepEP.
struct CheckoutFacts {
  std::string path{};
  Fact<std::string> commit{};
  Fact<bool> has_qp_layout_fix{};    // commit 29d31c0 (PR #564): needed from NVSHMEM 3.5 on
  Fact<bool> has_hca_mapping{};      // PR #466: _setup_device_hca_mapping
  Fact<std::string> cxx_standard{};  // "17", from setup.py; absent: inherited from torch
  Fact<std::int64_t> build_uid{};    // owner of build/; absent: there is none
  Fact<bool> is_build_writable{};    // by the gathering process

  static void fields(auto& self, auto&& field) {
    field("path", self.path);
    field("commit", self.commit);
    field("has_qp_layout_fix", self.has_qp_layout_fix);
    field("has_hca_mapping", self.has_hca_mapping);
    field("cxx_standard", self.cxx_standard);
    field("build_uid", self.build_uid);
    field("is_build_writable", self.is_build_writable);
  }
};

struct SoftwareFacts {
  std::vector<ToolkitFacts> toolkits{};
  Fact<std::string> nvcc{};            // the first on PATH, or of CUDA_HOME
  Fact<std::string> cxx{};             // g++ or c++ on PATH
  Fact<bool> has_mlx5_link{};          // an unversioned libmlx5.so on the linker's path
  Fact<std::string> gdrcopy_header{};  // gdrapi.h
  Fact<std::string> gib{};             // GKE's gIB folder
  Fact<std::string> efa_folder{};      // /opt/amazon/efa
  std::vector<LibraryFacts> libraries{};
  std::vector<PythonPackage> python{};
  std::vector<ExtensionFacts> extensions{};
  std::vector<CheckoutFacts> checkouts{};
  Fact<std::map<std::string, std::string>> packages{};  // dpkg's, of an allow-list: name to version

  static void fields(auto& self, auto&& field) {
    field("toolkits", self.toolkits);
    field("nvcc", self.nvcc);
    field("cxx", self.cxx);
    field("has_mlx5_link", self.has_mlx5_link);
    field("gdrcopy_header", self.gdrcopy_header);
    field("gib", self.gib);
    field("efa_folder", self.efa_folder);
    field("libraries", self.libraries);
    field("python", self.python);
    field("extensions", self.extensions);
    field("checkouts", self.checkouts);
    field("packages", self.packages);
  }
};

struct Facts {
  HostFacts host;
  ProcessFacts process;
  DriverFacts driver;
  KernelModules modules;
  Fact<std::vector<GpuFacts>> gpus{};  // unknown: hidden devices; empty: none
  Fact<std::vector<HcaFacts>> hcas{};  // /sys/class/infiniband
  std::vector<PciDevice> pci{};        // GPUs, NICs, NVSwitches and the bridges above them
  Fact<std::vector<std::string>> iommu_types{};  // of the groups; absent: no IOMMU
  std::vector<InterfaceFacts> interfaces{};
  std::vector<std::string> device_nodes{};  // those of interest below /dev
  SoftwareFacts software;

  [[nodiscard]] std::vector<GpuFacts> gpu_list() const { return gpus.value_or({}); }
  [[nodiscard]] std::vector<HcaFacts> hca_list() const { return hcas.value_or({}); }

  static void fields(auto& self, auto&& field) {
    field("host", self.host);
    field("process", self.process);
    field("driver", self.driver);
    field("modules", self.modules);
    field("gpus", self.gpus);
    field("hcas", self.hcas);
    field("pci", self.pci);
    field("iommu_types", self.iommu_types);
    field("interfaces", self.interfaces);
    field("device_nodes", self.device_nodes);
    field("software", self.software);
  }
};

}  // namespace ferry::ops
