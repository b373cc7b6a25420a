#include "ops/facts/environment.hpp"

#include <algorithm>
#include <array>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr std::array<std::string_view, 17> kPrefixes = {
    "NVSHMEM_", "NCCL_",  "FERRY_",     "UCX_",   "DEEP_EP_", "EP_",
    "CUDA_",    "SLURM_", "OMPI_COMM_", "FI_",    "GLOO_",    "NVLINK_",
    "MLX5_",    "UCCL_",  "MOONCAKE_",  "RDMAV_", "DOCA_"};

constexpr std::array<std::string_view, 25> kNames = {"PATH",
                                                     "LD_LIBRARY_PATH",
                                                     "LD_PRELOAD",
                                                     "LIBRARY_PATH",
                                                     "CPATH",
                                                     "PYTHONPATH",
                                                     "VIRTUAL_ENV",
                                                     "CONDA_PREFIX",
                                                     "TORCH_CUDA_ARCH_LIST",
                                                     "CXX",
                                                     "CC",
                                                     "PYTORCH_CUDA_ALLOC_CONF",
                                                     "RANK",
                                                     "WORLD_SIZE",
                                                     "LOCAL_RANK",
                                                     "MASTER_ADDR",
                                                     "MASTER_PORT",
                                                     "LOCAL_WORLD_SIZE",
                                                     "HOME",
                                                     "PYTORCH_ALLOC_CONF",
                                                     "KUBERNETES_SERVICE_HOST",
                                                     "GDRCOPY_HOME",
                                                     "NVIDIA_VISIBLE_DEVICES",
                                                     "NVIDIA_DRIVER_CAPABILITIES",
                                                     "DISABLE_SM90_FEATURES"};

constexpr std::array<std::string_view, 5> kSecretWords = {"KEY", "TOKEN", "SECRET", "PASSWORD",
                                                          "CREDENTIAL"};

}  // namespace

bool is_recorded_variable(std::string_view name) {
  for (const std::string_view word : kSecretWords)
    if (contains(name, word)) return false;
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::map<std::string, std::string> parse_environ(std::string_view text) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : split(text, '\0')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    if (is_recorded_variable(name)) variables[name] = entry.substr(equals + 1);
  }
  return variables;
}

}  // namespace ferry::ops
