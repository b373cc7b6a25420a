#include "ops/checks/derived.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "ops/text.hpp"
#include "topo/hca_mapping.hpp"

namespace ferry::ops {

namespace {

bool has_driver(const Facts& facts, const std::string& driver) {
  for (const HcaFacts& hca : facts.hca_list())
    if (hca.driver.is(driver)) return true;
  return false;
}

void add_names(const std::string& list, std::vector<std::string>& names) {
  for (std::string entry : split(list, ',')) {
    while (!entry.empty() && (entry[0] == '=' || entry[0] == '^')) entry.erase(0, 1);
    if (const auto hca = topo::parse_hca_port(trim(entry))) names.push_back(hca->name);
  }
}

}  // namespace

bool has_gpu(const Facts& facts) { return !facts.gpu_list().empty(); }
bool has_hca(const Facts& facts) { return !facts.hca_list().empty(); }
bool has_mlx5(const Facts& facts) { return has_driver(facts, "mlx5_core"); }
bool has_efa(const Facts& facts) { return has_driver(facts, "efa"); }
bool is_in_container(const Facts& facts) { return facts.process.container.is_known(); }

bool is_loaded(const Facts& facts, const std::string& module) {
  const std::vector<std::string> loaded = facts.modules.loaded.value_or({});
  return std::find(loaded.begin(), loaded.end(), module) != loaded.end() ||
         facts.modules.versions.contains(module);
}

bool has_peermem(const Facts& facts) {
  return is_loaded(facts, "nvidia_peermem") || is_loaded(facts, "nv_peer_mem") ||
         facts.modules.legacy_peermem.is_known();
}

bool has_peer_mapping(const std::string& options) {
  const std::string name = "PeerMappingOverride=";
  const std::size_t at = options.find(name);
  if (at == std::string::npos) return false;
  const std::size_t begin = at + name.size();
  const std::size_t end = options.find_first_not_of("0123456789abcdefABCDEFx", begin);
  const auto value =
      parse_whole(options.substr(begin, end == std::string::npos ? end : end - begin));
  return value == 1;
}

std::vector<const LibraryFacts*> libraries_of(const Facts& facts, const std::string& family) {
  std::vector<const LibraryFacts*> found;
  for (const LibraryFacts& library : facts.software.libraries)
    if (library.family == family) found.push_back(&library);
  return found;
}

const LibraryFacts* effective_nvshmem(const Facts& facts) {
  const auto found = libraries_of(facts, "nvshmem");
  for (const char* by : {"LD_PRELOAD", "LD_LIBRARY_PATH", "loader", "python", "prefix"})
    for (const LibraryFacts* library : found)
      if (library->found_by == by) return library;
  return nullptr;
}

std::vector<std::string> versions_of(const Facts& facts, const std::string& family) {
  std::vector<std::string> versions;
  for (const LibraryFacts* library : libraries_of(facts, family)) {
    const std::string version = library->version.value_or("");
    if (!version.empty() && std::find(versions.begin(), versions.end(), version) == versions.end())
      versions.push_back(version);
  }
  return versions;
}

const PythonPackage* package(const Facts& facts, const std::string& name) {
  for (const PythonPackage& found : facts.software.python)
    if (found.name == name) return &found;
  return nullptr;
}

std::vector<ActivePort> active_ports(const std::vector<HcaFacts>& hcas) {
  std::vector<ActivePort> ports;
  for (const HcaFacts& hca : hcas)
    for (const PortFacts& port : hca.ports)
      if (port.state.is("ACTIVE")) ports.push_back({&hca, &port});
  return ports;
}

bool is_ethernet(const PortFacts& port) { return port.link_layer.is("Ethernet"); }

bool is_link_local(const Gid& gid) { return gid.address.starts_with("fe80"); }

const Gid* routable_gid(const PortFacts& port) {
  for (const Gid& gid : port.gids)
    if (gid.type == "RoCE v2" && !is_link_local(gid)) return &gid;
  return nullptr;
}

std::vector<std::string> hcas_named_by_environment(const Facts& facts) {
  std::vector<std::string> names;
  add_names(facts.process.variable("NVSHMEM_HCA_LIST"), names);
  for (const std::string& entry :
       split(facts.process.variable("DEEP_EP_DEVICE_TO_HCA_MAPPING"), ','))
    if (const std::size_t colon = entry.find(':'); colon != std::string::npos)
      add_names(entry.substr(colon + 1), names);
  return names;
}

}  // namespace ferry::ops
