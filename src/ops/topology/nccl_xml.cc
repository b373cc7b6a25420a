#include "ops/topology/nccl_xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <pugixml.hpp>
#include <sstream>

#include "base/error.hpp"
#include "ops/facts/nvml.hpp"
#include "ops/facts/root.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// Deeper than any PCI tree; a file that nests more is no topology.
constexpr std::size_t kMaxDepth = 32;

struct Reading {
  std::string_view source;
  std::vector<PciDevice> devices{};
  std::vector<GpuFacts> gpus{};
  std::vector<HcaFacts> hcas{};
};

void read_gpu(const pugi::xml_node& node, const std::string& address, Reading& reading) {
  GpuFacts gpu;
  gpu.index = node.attribute("dev").as_int();
  gpu.pci = address;
  const int sm = node.attribute("sm").as_int();
  if (sm > 0) gpu.compute_capability = fmt::format("{}.{}", sm / 10, sm % 10);
  std::vector<NvLink> links;
  for (const pugi::xml_node& link : node.children("nvlink")) {
    const bool is_switch =
        std::string_view(link.attribute("tclass").as_string()).starts_with("0x0680");
    const int count = std::clamp(link.attribute("count").as_int(), 0, 64);
    for (int i = 0; i < count; ++i)
      links.push_back(
          {.link = static_cast<int>(links.size()),
           .is_active = true,
           .peer = is_switch ? "" : normal_pci_address(link.attribute("target").as_string()),
           .is_switch = is_switch});
  }
  gpu.nvlinks = links;
  reading.gpus.push_back(gpu);
}

void read_net(const pugi::xml_node& node, const std::string& address, Reading& reading) {
  HcaFacts hca;
  hca.name = node.attribute("name").as_string();
  if (hca.name.empty()) return;
  hca.pci = address;
  PortFacts port;
  port.number = std::max(1, node.attribute("port").as_int(1));
  port.state = "ACTIVE";
  port.rate_gbps = node.attribute("speed").as_double() / 1000;
  hca.ports = {port};
  reading.hcas.push_back(hca);
}

void read_pci(const pugi::xml_node& node,
              std::vector<std::string> path,
              int numa,
              Reading& reading) {
  const std::string address = normal_pci_address(node.attribute("busid").as_string());
  FERRY_CHECK(!address.empty() && path.size() < kMaxDepth, ErrorCode::kInvalidArgument,
              "{}: a pci element at depth {} has the busid '{}', expected an address such as "
              "0000:8f:00.0, at most {} deep",
              reading.source, path.size(), address, kMaxDepth);
  path.push_back(address);
  PciDevice device;
  device.address = address;
  device.vendor = node.attribute("vendor").as_string();
  device.device = node.attribute("device").as_string();
  device.pci_class = node.attribute("class").as_string();
  device.numa_node = numa < 0 ? Fact<std::int64_t>::absent() : Fact<std::int64_t>(numa);
  device.path = path;
  reading.devices.push_back(device);
  for (const pugi::xml_node& child : node.children()) {
    const std::string_view name = child.name();
    if (name == "pci") read_pci(child, path, numa, reading);
    if (name == "gpu") read_gpu(child, address, reading);
    if (name == "nic")
      for (const pugi::xml_node& net : child.children("net")) read_net(net, address, reading);
  }
}

template <typename T, typename Key>
void sort_by(std::vector<T>& values, const Key& key) {
  std::stable_sort(values.begin(), values.end(),
                   [&](const T& a, const T& b) { return key(a) < key(b); });
}

// ---- out -----------------------------------------------------------------------------------

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name) = value.c_str();
}

void write_gpu(pugi::xml_node parent, const Facts& facts, const GpuFacts& gpu) {
  pugi::xml_node node = parent.append_child("gpu");
  node.append_attribute("dev") = gpu.index;
  const std::string capability = gpu.compute_capability.value_or("");
  std::string sm = capability;
  sm.erase(std::remove(sm.begin(), sm.end(), '.'), sm.end());
  set(node, "sm", sm);
  std::map<std::string, int> num_links;  // by peer, "" for switches
  for (const NvLink& link : gpu.nvlinks.value_or({}))
    if (link.is_active) ++num_links[link.is_switch ? "" : link.peer];
  for (const auto& [peer, count] : num_links) {
    pugi::xml_node link = node.append_child("nvlink");
    std::string target = peer;
    for (const PciDevice& device : facts.pci)
      if (peer.empty() && device.pci_class.starts_with("0x0680")) target = device.address;
    set(link, "target", target);
    link.append_attribute("count") = count;
    set(link, "tclass", peer.empty() ? "0x068000" : "0x030200");
  }
}

void write_nets(pugi::xml_node parent, const Facts& facts, const std::string& address) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  for (std::size_t i = 0; i < hcas.size(); ++i) {
    if (!hcas[i].pci.is(address)) continue;
    pugi::xml_node nic = parent.append_child("nic");
    for (const PortFacts& port : hcas[i].ports) {
      pugi::xml_node net = nic.append_child("net");
      set(net, "name", hcas[i].name);
      net.append_attribute("dev") = static_cast<int>(i);
      net.append_attribute("speed") =
          static_cast<int>(std::clamp(port.rate_gbps.value_or(0), 0.0, 1e6) * 1000);
      net.append_attribute("port") = port.number;
    }
  }
}

pugi::xml_node child_with(pugi::xml_node parent,
                          const char* name,
                          const char* key,
                          const std::string& value) {
  pugi::xml_node node = parent.find_child_by_attribute(name, key, value.c_str());
  if (!node) {
    node = parent.append_child(name);
    set(node, key, value);
  }
  return node;
}

}  // namespace

void apply_nccl_topology(std::string_view text, std::string_view source, Facts& facts) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(text.data(), text.size());
  FERRY_CHECK(result, ErrorCode::kInvalidArgument, "{} is not XML: {} at byte {}", source,
              result.description(), result.offset);
  const pugi::xml_node system = document.child("system");
  FERRY_CHECK(system, ErrorCode::kInvalidArgument,
              "{} has no <system> element, expected a topology file as NCCL_TOPO_DUMP_FILE writes",
              source);
  Reading reading{.source = source};
  for (const pugi::xml_node& cpu : system.children("cpu"))
    for (const pugi::xml_node& device : cpu.children("pci"))
      read_pci(device, {}, cpu.attribute("numaid").as_int(-1), reading);

  for (const PciDevice& device : reading.devices) {
    const auto same = std::find_if(facts.pci.begin(), facts.pci.end(), [&](const PciDevice& other) {
      return other.address == device.address;
    });
    if (same == facts.pci.end()) {
      facts.pci.push_back(device);
    } else {
      same->path = device.path;
      same->numa_node = device.numa_node;
    }
  }
  sort_by(reading.gpus, [](const GpuFacts& gpu) { return gpu.pci; });
  sort_by(reading.hcas, [](const HcaFacts& hca) { return hca.name; });
  for (std::size_t i = 0; i < reading.gpus.size(); ++i) reading.gpus[i].index = static_cast<int>(i);
  if (facts.gpu_list().empty()) facts.gpus = reading.gpus;
  if (facts.hca_list().empty()) facts.hcas = reading.hcas;
}

void apply_topology_file(const std::string& file, Facts& facts) {
  const Fact<std::string> text = Root().read(std::filesystem::absolute(file).string());
  FERRY_CHECK(text.is_known(), ErrorCode::kInvalidArgument, "cannot read the topology in '{}': {}",
              file, text.is_absent() ? "no such file" : text.reason());
  apply_nccl_topology(text.value(), file, facts);
}

std::string write_nccl_topology(const Facts& facts) {
  pugi::xml_document document;
  pugi::xml_node system = document.append_child("system");
  set(system, "version", "1");
  for (const PciDevice& device : facts.pci) {
    const std::string numa = std::to_string(device.numa_node.value_or(-1));
    pugi::xml_node node = child_with(system, "cpu", "numaid", numa);
    for (const std::string& address : device.path) node = child_with(node, "pci", "busid", address);
    set(node, "class", device.pci_class);
    set(node, "vendor", device.vendor);
    set(node, "device", device.device);
    for (const GpuFacts& gpu : facts.gpu_list())
      if (gpu.pci == device.address) write_gpu(node, facts, gpu);
    write_nets(node, facts, device.address);
  }
  std::ostringstream out;
  document.save(out, "  ");
  return out.str();
}

}  // namespace ferry::ops
