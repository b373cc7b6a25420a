#include "ops/diagnose/clues.hpp"

#include <algorithm>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

std::optional<long long> largest_value(const Sighting* sighting) {
  if (sighting == nullptr || sighting->largest <= 0) return std::nullopt;
  return static_cast<long long>(sighting->largest);
}

bool is_peermem(const std::string& module) {
  return module == "nvidia_peermem" || module == "nv_peer_mem";
}

}  // namespace

std::string Clues::setting(const std::string& name) const {
  const auto found = evidence_.settings().find(name);
  if (found != evidence_.settings().end()) return found->second;
  return facts_ != nullptr ? facts_->process.variable(name) : std::string();
}

bool Clues::has_setting(const std::string& name) const {
  return evidence_.settings().contains(name) ||
         (facts_ != nullptr && facts_->process.has_variable(name));
}

std::string Clues::nvshmem_version() const {
  if (const Sighting* banner = find(Signal::kNvshmemVersion)) return *banner->values.begin();
  if (facts_ == nullptr) return "";
  for (const LibraryFacts& library : facts_->software.libraries)
    if (library.family == "nvshmem" && library.version.is_known()) return library.version.value();
  return "";
}

std::string Clues::link_layer() const {
  std::set<std::string> layers;
  if (const Sighting* printed = find(Signal::kLinkLayer))
    for (const std::string& value : printed->values)
      layers.insert(lower(value) == "infiniband" ? "InfiniBand" : "Ethernet");
  if (layers.empty() && facts_ != nullptr)
    for (const HcaFacts& hca : facts_->hca_list())
      for (const PortFacts& port : hca.ports)
        if (port.link_layer.is_known()) layers.insert(port.link_layer.value());
  if (layers.empty()) return "";
  return layers.size() == 1 ? *layers.begin() : "mixed";
}

bool Clues::has_only_mlx5() const {
  if (facts_ != nullptr && facts_->hcas.is_known()) {
    const auto& hcas = facts_->hcas.value();
    return !hcas.empty() && std::all_of(hcas.begin(), hcas.end(), [](const HcaFacts& hca) {
      return hca.driver.is("mlx5_core");
    });
  }
  return has(Signal::kMlx5Name);
}

bool Clues::has_other_nics() const {
  if (facts_ == nullptr) return false;
  const auto hcas = facts_->hca_list();
  return std::any_of(hcas.begin(), hcas.end(), [](const HcaFacts& hca) {
    return hca.driver.is_known() && !hca.driver.is("mlx5_core");
  });
}

bool Clues::has_peermem() const {
  if (has(Signal::kPeermemLoaded)) return true;
  if (facts_ == nullptr || !facts_->modules.loaded.is_known()) return false;
  const auto& loaded = facts_->modules.loaded.value();
  return std::any_of(loaded.begin(), loaded.end(), is_peermem);
}

bool Clues::lacks_peermem() const {
  if (has(Signal::kPeermemLoaded) || facts_ == nullptr) return false;
  return facts_->modules.loaded.is_known() && !has_peermem();
}

bool Clues::has_cpu_handler() const {
  if (has(Signal::kHandlerCpu)) return true;
  return !has(Signal::kHandlerGpu) && lower(setting("NVSHMEM_IBGDA_NIC_HANDLER")) == "cpu";
}

bool Clues::lacks_qp_fix() const {
  if (facts_ == nullptr) return false;
  const auto& trees = facts_->software.checkouts;
  return std::any_of(trees.begin(), trees.end(),
                     [](const CheckoutFacts& tree) { return tree.has_qp_layout_fix.is(false); });
}

bool Clues::has_qp_fix() const {
  if (facts_ == nullptr || facts_->software.checkouts.empty()) return false;
  const auto& trees = facts_->software.checkouts;
  return std::all_of(trees.begin(), trees.end(),
                     [](const CheckoutFacts& tree) { return tree.has_qp_layout_fix.is(true); });
}

bool Clues::links_wheel_without_ibgda() const {
  if (has(Signal::kWheelNvshmem)) return true;
  if (facts_ == nullptr) return false;
  const auto& extensions = facts_->software.extensions;
  return std::any_of(extensions.begin(), extensions.end(), [](const ExtensionFacts& extension) {
    return extension.has_nvshmem && !extension.has_ibgda;
  });
}

bool Clues::lacks_nvlink() const {
  if (has(Signal::kPcieGpu)) return true;
  if (facts_ == nullptr) return false;
  const auto gpus = facts_->gpu_list();
  return !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [](const GpuFacts& gpu) {
    return gpu.nvlinks.is_known() &&
           std::none_of(gpu.nvlinks->begin(), gpu.nvlinks->end(),
                        [](const NvLink& link) { return link.is_active; });
  });
}

std::optional<double> Clues::nic_gbytes() const {
  if (facts_ == nullptr) return std::nullopt;
  double best = 0;
  for (const HcaFacts& hca : facts_->hca_list())
    for (const PortFacts& port : hca.ports) best = std::max(best, port.rate_gbps.value_or(0));
  if (best <= 0) return std::nullopt;
  return best / 8;
}

std::optional<long long> Clues::world_size() const {
  if (const auto printed = largest_value(find(Signal::kWorldSize))) return printed;
  if (facts_ != nullptr)
    if (const auto size = parse_whole(facts_->process.variable("WORLD_SIZE"))) return size;
  return std::nullopt;
}

std::optional<long long> Clues::gpus_per_host() const {
  if (facts_ == nullptr || !facts_->gpus.is_known()) return std::nullopt;
  const auto num = static_cast<long long>(facts_->gpus->size());
  if (num == 0) return std::nullopt;
  return num;
}

std::optional<long long> Clues::num_hosts() const {
  if (const auto printed = largest_value(find(Signal::kNumHosts))) return printed;
  const auto size = world_size();
  const auto gpus = gpus_per_host();
  if (!size || !gpus) return std::nullopt;
  return (*size + *gpus - 1) / *gpus;
}

}  // namespace ferry::ops
