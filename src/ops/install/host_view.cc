#include "ops/install/host_view.hpp"

#include <algorithm>

#include "ops/text.hpp"

namespace ferry::ops {

std::string HostView::below_prefix(const std::string& name) const {
  return options_.prefix + "/" + name;
}

bool HostView::has_file(const std::string& folder, const std::string& beginning) const {
  const std::vector<std::string> names = root_.names(below_prefix(folder));
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(beginning); });
}

std::string HostView::cuda_home() const {
  std::string home;
  for (const ToolkitFacts& toolkit : facts_.software.toolkits) {
    const std::string version = toolkit.version.value_or("");
    if (!toolkit.has_nvcc || !version.starts_with("12.")) continue;
    if (version == "12.9" || version.starts_with("12.9.")) return toolkit.path;
    if (is_at_least(version, "12.8")) home = toolkit.path;
  }
  return home;
}

std::string HostView::arch() const {
  if (!options_.arch.empty()) return options_.arch;
  for (const GpuFacts& gpu : facts_.gpu_list())
    if (gpu.compute_capability.is_known()) return gpu.compute_capability.value();
  return "10.0";
}

bool HostView::is_guide_system() const {
  return facts_.host.os_id.is("ubuntu") && facts_.host.os_version.is("24.04") &&
         facts_.host.arch.value_or("x86_64") == "x86_64";
}

std::string HostView::system() const {
  return facts_.host.os_id.value_or("an unknown system") + " " +
         facts_.host.os_version.value_or("") + " on " + facts_.host.arch.value_or("x86_64");
}

std::vector<std::string> HostView::missing_packages(
    const std::vector<std::string>& packages) const {
  const auto installed = facts_.software.packages.value_or({});
  std::vector<std::string> missing;
  for (const std::string& package : packages)
    if (!installed.contains(package)) missing.push_back(package);
  return missing;
}

std::vector<std::string> HostView::hca_names() const {
  std::vector<std::string> names;
  for (const HcaFacts& hca : facts_.hca_list()) names.push_back(hca.name);
  return names;
}

bool HostView::has_rocep() const {
  const auto names = hca_names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("rocep"); });
}

bool HostView::uses_system_python() const {
  if (options_.is_system_python) return true;
  const auto& packages = facts_.software.python;
  return !root_.is_folder(below_prefix("venv")) &&
         std::any_of(packages.begin(), packages.end(), [](const PythonPackage& package) {
           return package.name == "torch" && package.version == "2.9.1+cu129";
         });
}

std::string HostView::python() const {
  return uses_system_python() ? "/usr/bin/python3" : below_prefix("venv/bin/python3");
}

std::string HostView::python_version_of(const std::string& package) const {
  if (uses_system_python()) {
    for (const PythonPackage& found : facts_.software.python)
      if (found.name == package) return found.version;
    return "";
  }
  for (const std::string& lib : root_.names(below_prefix("venv/lib")))
    for (const std::string& name : root_.names(below_prefix("venv/lib/" + lib + "/site-packages")))
      if (name.starts_with(package + "-") && name.ends_with(".dist-info"))
        return name.substr(package.size() + 1, name.size() - package.size() - 11);
  return "";
}

bool HostView::sets_peer_mapping(const std::string& text) {
  for (std::size_t at = text.find("PeerMappingOverride="); at != std::string::npos;
       at = text.find("PeerMappingOverride=", at + 1)) {
    std::string value = text.substr(at + 20);
    value = value.substr(0, value.find_first_not_of("0123456789abcdefxABCDEFX"));
    if (parse_whole(value) == 1) return true;
  }
  return false;
}

}  // namespace ferry::ops
