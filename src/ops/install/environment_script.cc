#include "ops/install/environment_script.hpp"

#include <fmt/format.h>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// "0:mlx5_0:1,1:mlx5_1:1": GPU i and the NIC of the same number, as on the guide's machines.
std::string mapping(const HostView& host) {
  const std::vector<std::string> hcas = host.hca_names();
  const std::size_t num = host.facts().gpus.is_known() ? host.facts().gpus->size() : 0;
  if (num == 0 || hcas.size() < num) return "";
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < num; ++i) entries.push_back(fmt::format("{}:{}:1", i, hcas[i]));
  return join(entries, ",");
}

std::string export_line(const std::string& name, const std::string& value, const std::string& why) {
  return fmt::format("export {}={}  # {}\n", name, value, why);
}

// Prepends once, however often the script is sourced.
std::string prepend_lines(const std::string& name, const std::string& folder) {
  return fmt::format(
      "case \":${{{0}:-}}:\" in *\":{1}:\"*) ;; *) export {0}={1}${{{0}:+:${0}}} ;; esac\n", name,
      folder);
}

}  // namespace

std::string make_environment_script(const HostView& host) {
  const std::string nvshmem = host.below_prefix("nvshmem");
  const std::string home = host.cuda_home().empty() ? "/usr/local/cuda-12.9" : host.cuda_home();
  std::string script =
      "# Written by ferry install. Source it before DeepEP runs; twice does no harm.\n";
  script += export_line("CUDA_HOME", home, "the toolkit that everything was built with");
  script += export_line("NVSHMEM_HOME", nvshmem, "where tools look for NVSHMEM");
  script += export_line("NVSHMEM_DIR", nvshmem, "where DeepEP's build looks for it");
  script += prepend_lines("LD_LIBRARY_PATH", nvshmem + "/lib");
  script += prepend_lines("PATH", nvshmem + "/bin");
  script += prepend_lines("PYTHONPATH", host.below_prefix("DeepEP"));
  script += fmt::format(
      "# PyTorch's own NVSHMEM would win otherwise\n"
      "if [ -r {0}/lib/libnvshmem_host.so.3 ]; then\n  {1}fi\n",
      nvshmem, prepend_lines("LD_PRELOAD", nvshmem + "/lib/libnvshmem_host.so.3"));
  script += export_line("NVSHMEM_REMOTE_TRANSPORT", "ibgda", "the GPU talks to the NIC itself");
  script += export_line("NVSHMEM_IB_ENABLE_IBGDA", "1", "the same, older name");
  script += export_line("NVSHMEM_IBGDA_NIC_HANDLER", host.options().nic_handler,
                        "who rings the NIC's doorbell");
  script += export_line("NVSHMEM_HCA_PREFIX", "mlx5", "the NICs' names");
  script += export_line("NVSHMEM_IB_GID_INDEX", "3", "RoCE v2 over IPv4");
  script += export_line("NVSHMEM_DISABLE_CUDA_VMM", "1", "as the guide's stack was measured");
  const std::string nics = mapping(host);
  if (!nics.empty())
    script += export_line("DEEP_EP_DEVICE_TO_HCA_MAPPING", nics, "one NIC for each GPU");
  return script;
}

}  // namespace ferry::ops
