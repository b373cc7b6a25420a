#include <algorithm>
#include <set>

#include "ops/facts/gather.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

constexpr const char* kDevices = "/sys/bus/pci/devices/";

bool is_pci_address(const std::string& part) {
  return part.size() >= 12 && part[part.size() - 2] == '.' && part[part.size() - 5] == ':';
}

// "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" is {"0000:00:01.0", "0000:01:00.0"}.
std::vector<std::string> path_of(const Root& root, const std::string& address) {
  std::vector<std::string> path;
  const Fact<std::string> real = root.resolve(kDevices + address);
  for (const std::string& part : split(real.value_or(""), '/'))
    if (is_pci_address(part)) path.push_back(part);
  if (path.empty()) path.push_back(address);
  return path;
}

std::uint32_t word_at(const std::string& config, std::size_t at, std::size_t num_bytes) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < num_bytes; ++i)
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(config[at + i])) << (8 * i);
  return word;
}

// Bits 2 and 3 of the ACS control register send requests and completions between devices up to the
// root complex. The register lies beyond the 256 bytes that a user without CAP_SYS_ADMIN may read.
Fact<bool> redirects(const Root& root, const std::string& address) {
  constexpr std::size_t kExtended = 0x100;
  constexpr std::uint32_t kAcsId = 0x000d;
  const Fact<std::string> config = root.read(kDevices + address + "/config");
  if (!config.is_known()) return Fact<bool>::unknown("its config space is not readable");
  if (config->size() < 4096)
    return Fact<bool>::unknown("only root reads the config space beyond 256 bytes");
  std::set<std::size_t> visited;  // a broken list must not be walked for ever
  for (std::size_t at = kExtended; at >= kExtended && at + 8 <= config->size();) {
    if (!visited.insert(at).second) break;
    const std::uint32_t header = word_at(config.value(), at, 4);
    if ((header & 0xffff) == kAcsId) return (word_at(config.value(), at + 6, 2) & 0x0c) != 0;
    at = (header >> 20) & 0xffc;
  }
  return false;
}

PciDevice device_of(const Root& root, const std::string& address) {
  const std::string folder = kDevices + address;
  PciDevice device;
  device.address = address;
  device.vendor = root.read_line(folder + "/vendor").value_or("");
  device.device = root.read_line(folder + "/device").value_or("");
  device.pci_class = root.read_line(folder + "/class").value_or("");
  device.numa_node = root.read_number(folder + "/numa_node");
  if (device.numa_node.is_known() && device.numa_node.value() < 0)
    device.numa_node = Fact<std::int64_t>::absent();
  device.path = path_of(root, address);
  const Fact<std::string> driver = root.resolve(folder + "/driver");
  device.driver =
      driver.is_known() ? Fact<std::string>(driver->substr(driver->rfind('/') + 1)) : driver;
  device.redirects = Fact<bool>::absent();
  if (device.pci_class.starts_with("0x0604")) device.redirects = redirects(root, address);
  return device;
}

// GPUs and NVSwitches of NVIDIA, and whatever an RDMA device or the driver's list names.
std::set<std::string> devices_of_interest(const Root& root, const Facts& facts) {
  std::set<std::string> addresses;
  for (const GpuFacts& gpu : facts.gpu_list()) addresses.insert(gpu.pci);
  for (const HcaFacts& hca : facts.hca_list())
    if (hca.pci.is_known()) addresses.insert(hca.pci.value());
  for (const std::string& address : root.names("/sys/bus/pci/devices")) {
    const std::string pci_class = root.read_line(kDevices + address + "/class").value_or("");
    const bool is_nvidia = root.read_line(kDevices + address + "/vendor").is("0x10de");
    const bool is_switch = is_nvidia && pci_class.starts_with("0x0680");
    if (is_switch || pci_class.starts_with("0x0207") || pci_class.starts_with("0x0200"))
      addresses.insert(address);
  }
  return addresses;
}

}  // namespace

void gather_pci(const Root& root, Facts& facts) {
  std::set<std::string> addresses = devices_of_interest(root, facts);
  std::set<std::string> bridges;
  for (const std::string& address : addresses)
    for (const std::string& above : path_of(root, address)) bridges.insert(above);
  addresses.insert(bridges.begin(), bridges.end());
  for (const std::string& address : addresses)
    if (root.exists(kDevices + address)) facts.pci.push_back(device_of(root, address));

  const Fact<std::vector<std::string>> groups = root.list("/sys/kernel/iommu_groups");
  if (groups.is_unknown()) {
    facts.iommu_types = groups;
    return;
  }
  std::set<std::string> types;
  for (const std::string& group : groups.value_or({})) {
    const Fact<std::string> type = root.read_line("/sys/kernel/iommu_groups/" + group + "/type");
    if (type.is_known()) types.insert(type.value());
  }
  if (groups.value_or({}).empty()) {
    facts.iommu_types = Fact<std::vector<std::string>>::absent();
  } else {
    facts.iommu_types = std::vector<std::string>(types.begin(), types.end());
  }
}

}  // namespace ferry::ops::gathering
