#include "ops/facts/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// The part of NVML's C interface that is used; its layout is stable by the vendor's promise.
using Device = struct NvmlDevice*;
struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct FabricInfo {  // nvmlGpuFabricInfo_t
  std::array<unsigned char, 16> cluster_uuid;
  int status;
  unsigned clique_id;
  unsigned char state;
};
constexpr int kSuccess = 0;
constexpr unsigned kMaxLinks = 18;
constexpr int kRemoteSwitch = 2;

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      error_ = "libnvidia-ml.so.1 cannot be opened";
      return;
    }
    const auto init = find<int()>("nvmlInit_v2");
    const int status = init == nullptr ? -1 : init();
    if (status != kSuccess) error_ = fmt::format("nvmlInit_v2 says {}", status);
  }
  ~Nvml() {
    if (library_ == nullptr) return;
    const auto shutdown = find<int()>("nvmlShutdown");
    if (error_.empty() && shutdown != nullptr) shutdown();
    ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] const std::string& error() const { return error_; }

  // False where the function is missing or refuses.
  template <typename... Args>
  bool call(const char* name, Args... args) const {
    const auto function = find<int(Args...)>(name);
    return function != nullptr && function(args...) == kSuccess;
  }

 private:
  template <typename Signature>
  Signature* find(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(library_, name));
  }

  void* library_;
  std::string error_;
};

Fact<std::string> ask_text(const Nvml& nvml, const char* name, Device device) {
  std::array<char, 96> text{};
  if (!nvml.call(name, device, text.data(), 96U)) return Fact<std::string>::unknown("NVML refuses");
  return std::string(text.data());
}

std::vector<NvLink> ask_links(const Nvml& nvml, Device device) {
  std::vector<NvLink> links;
  for (unsigned i = 0; i < kMaxLinks; ++i) {
    unsigned is_active = 0;
    if (!nvml.call("nvmlDeviceGetNvLinkState", device, i, &is_active)) break;
    NvLink link{.link = static_cast<int>(i), .is_active = is_active != 0, .peer = ""};
    PciInfo remote{};
    if (link.is_active && nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, i, &remote))
      link.peer = normal_pci_address(remote.bus_id.data());
    int kind = 0;
    if (nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", device, i, &kind))
      link.is_switch = kind == kRemoteSwitch;
    links.push_back(link);
  }
  return links;
}

void ask_fabric(const Nvml& nvml, Device device, GpuFacts& gpu) {
  FabricInfo info{};
  if (!nvml.call("nvmlDeviceGetGpuFabricInfo", device, &info) || info.state == 0) {
    gpu.fabric_state = gpu.fabric_cluster = Fact<std::string>::absent();
    gpu.fabric_clique = Fact<std::int64_t>::absent();
    return;
  }
  gpu.fabric_state = info.state == 3   ? "completed"
                     : info.state == 2 ? "in-progress"
                                       : "not-started";
  std::string uuid;
  for (const unsigned char byte : info.cluster_uuid) uuid += fmt::format("{:02x}", byte);
  gpu.fabric_cluster = uuid;
  gpu.fabric_clique = static_cast<std::int64_t>(info.clique_id);
}

GpuFacts ask_gpu(const Nvml& nvml, unsigned index, Device device) {
  GpuFacts gpu;
  gpu.index = static_cast<int>(index);
  PciInfo pci{};
  if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci))
    gpu.pci = normal_pci_address(pci.bus_id.data());
  gpu.name = ask_text(nvml, "nvmlDeviceGetName", device);
  gpu.uuid = ask_text(nvml, "nvmlDeviceGetUUID", device);
  int major = 0;
  int minor = 0;
  if (nvml.call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor))
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  MemoryInfo memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory))
    gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
  unsigned mig = 0;
  unsigned pending = 0;
  gpu.is_mig = nvml.call("nvmlDeviceGetMigMode", device, &mig, &pending) && mig != 0;
  gpu.nvlinks = ask_links(nvml, device);
  ask_fabric(nvml, device, gpu);
  return gpu;
}

}  // namespace

NvmlAnswer ask_nvml() {
  NvmlAnswer answer;
  const Nvml nvml;
  answer.error = nvml.error();
  if (!answer.error.empty()) return answer;
  int cuda = 0;
  if (nvml.call("nvmlSystemGetCudaDriverVersion_v2", &cuda))
    answer.cuda_version = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  unsigned num_gpus = 0;
  if (!nvml.call("nvmlDeviceGetCount_v2", &num_gpus)) {
    answer.error = "NVML does not count its devices";
    return answer;
  }
  for (unsigned i = 0; i < num_gpus; ++i) {
    Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device))
      answer.gpus.push_back(ask_gpu(nvml, i, device));
  }
  return answer;
}

std::string normal_pci_address(std::string_view address) {
  std::string text = lower(trim(address));
  const std::size_t colon = text.find(':');
  if (colon == 8 && text.starts_with("0000")) text = text.substr(4);
  return text;
}

}  // namespace ferry::ops
