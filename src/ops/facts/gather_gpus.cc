#include <algorithm>

#include "ops/facts/facts_json.hpp"
#include "ops/facts/gather.hpp"
#include "ops/facts/nvml.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

constexpr const char* kDriverFolder = "/proc/driver/nvidia/gpus";

// "Model: \t\t NVIDIA B200" of a GPU's information file.
Fact<std::string> information(const std::string& text, const std::string& name) {
  for (const std::string& line : lines_of(text))
    if (line.starts_with(name + ":")) return trim(line.substr(name.size() + 1));
  return Fact<std::string>::unknown("the driver's information file has no " + name);
}

std::vector<GpuFacts> gpus_of_driver(const Root& root) {
  std::vector<GpuFacts> gpus;
  for (const std::string& address : root.names(kDriverFolder)) {
    const std::string text =
        root.read(std::string(kDriverFolder) + "/" + address + "/information").value_or("");
    GpuFacts gpu;
    gpu.pci = normal_pci_address(address);
    gpu.name = information(text, "Model");
    gpu.uuid = information(text, "GPU UUID");
    gpus.push_back(gpu);
  }
  return gpus;
}

// Where the driver shows none: what the PCI bus has, 3D and VGA controllers of NVIDIA.
std::vector<GpuFacts> gpus_on_bus(const Root& root) {
  std::vector<GpuFacts> gpus;
  for (const std::string& address : root.names("/sys/bus/pci/devices")) {
    const std::string device = "/sys/bus/pci/devices/" + address;
    const std::string pci_class = root.read_line(device + "/class").value_or("");
    if (root.read_line(device + "/vendor").value_or("") != "0x10de") continue;
    if (!pci_class.starts_with("0x0300") && !pci_class.starts_with("0x0302")) continue;
    GpuFacts gpu;
    gpu.pci = normal_pci_address(address);
    gpus.push_back(gpu);
  }
  return gpus;
}

// The driver's own answers replace what files say, GPU by GPU.
void overlay(std::vector<GpuFacts>& gpus, const std::vector<GpuFacts>& answers) {
  for (const GpuFacts& answer : answers) {
    const auto same = std::find_if(gpus.begin(), gpus.end(),
                                   [&](const GpuFacts& gpu) { return gpu.pci == answer.pci; });
    if (same != gpus.end()) {
      *same = answer;
    } else {
      gpus.push_back(answer);
    }
  }
}

}  // namespace

void gather_gpus(const Root& root, Facts& facts) {
  std::vector<GpuFacts> gpus = gpus_of_driver(root);
  if (gpus.empty()) gpus = gpus_on_bus(root);
  if (root.is_live()) {
    const NvmlAnswer answer = ask_nvml();
    if (answer.error.empty()) {
      overlay(gpus, answer.gpus);
      facts.driver.cuda_version = answer.cuda_version;
    } else {
      facts.driver.cuda_version = Fact<std::string>::unknown(answer.error);
    }
  } else if (const Fact<std::string> text = root.read("/ferry/gpus.json"); text.is_known()) {
    overlay(gpus, parse_gpu_facts(text.value(), "ferry/gpus.json below the root"));
  }
  if (!root.is_live()) {
    const Fact<std::string> cuda = root.read_line("/ferry/cuda_version");
    if (cuda.is_known()) facts.driver.cuda_version = cuda;
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const GpuFacts& a, const GpuFacts& b) { return a.pci < b.pci; });
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].index = static_cast<int>(i);
  facts.gpus = gpus;
}

}  // namespace ferry::ops::gathering
