#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "ops/facts/gather.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

constexpr std::array kPackages = {"doca-ofed",
                                  "rdma-core",
                                  "libibverbs-dev",
                                  "libibverbs1",
                                  "ibverbs-utils",
                                  "cuda-keyring",
                                  "cuda-toolkit-12-8",
                                  "cuda-toolkit-12-9",
                                  "cuda-toolkit-13-0",
                                  "libnccl2",
                                  "pkg-config",
                                  "libfmt-dev",
                                  "libsodium-dev",
                                  "nlohmann-json3-dev",
                                  "libcli11-dev",
                                  "libelf-dev",
                                  "libpugixml-dev",
                                  "libre2-dev",
                                  "libyaml-cpp-dev",
                                  "zlib1g-dev",
                                  "libnvshmem3-dev-cuda-12",
                                  "libnvshmem3-static-cuda-12",
                                  "cmake",
                                  "ninja-build",
                                  "python3-pip",
                                  "python3-venv",
                                  "git",
                                  "g++",
                                  "make",
                                  "libgdrapi",
                                  "gdrdrv-dkms",
                                  "libnvshmem3-cuda-12",
                                  "libnvshmem3-cuda-13",
                                  "nvidia-fabricmanager-570",
                                  "nvidia-fabricmanager-580",
                                  "mlnx-ofed-kernel-dkms",
                                  "perftest"};

constexpr std::array kLibraryFolders = {"/usr/lib/x86_64-linux-gnu",
                                        "/lib/x86_64-linux-gnu",
                                        "/usr/lib/aarch64-linux-gnu",
                                        "/usr/lib64",
                                        "/lib64",
                                        "/usr/lib",
                                        "/usr/local/lib"};

// version.json of a toolkit: {"cuda": {"version": "12.9.1"}}.
Fact<std::string> toolkit_version(const Root& root, const std::string& path) {
  const Fact<std::string> text = root.read(path + "/version.json");
  if (text.is_known()) {
    const auto json = nlohmann::json::parse(text.value(), nullptr, false);
    const auto version = nlohmann::json::json_pointer("/cuda/version");
    if (!json.is_discarded() && json.contains(version) && json[version].is_string())
      return json[version].get<std::string>();
  }
  // "CUDA Version 10.2.89" of old toolkits.
  for (const std::string& word : words_of(root.read(path + "/version.txt").value_or("")))
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return word;
  // "#define CUDA_VERSION 13000" of its header: major * 1000 + minor * 10.
  const std::string header = root.read(path + "/include/cuda.h").value_or("");
  const std::string mark = "#define CUDA_VERSION ";
  if (const std::size_t at = header.find(mark); at != std::string::npos) {
    const std::vector<std::string> words = words_of(header.substr(at + mark.size(), 16));
    const auto number = parse_whole(words.empty() ? "" : words.front());
    if (number) return fmt::format("{}.{}", *number / 1000, *number % 1000 / 10);
  }
  return Fact<std::string>::unknown(path + " has neither version.json nor include/cuda.h");
}

void gather_toolkits(const Root& root, SoftwareFacts& software) {
  std::vector<std::string> folders;
  for (const std::string& name : root.names("/usr/local"))
    if (name == "cuda" || name.starts_with("cuda-")) folders.push_back("/usr/local/" + name);
  const Fact<std::string> standard = root.resolve("/usr/local/cuda");
  std::map<std::string, bool> seen;
  for (const std::string& folder : folders) {
    const std::string real = root.resolve(folder).value_or("");
    if (real.empty() || seen[real]) continue;
    seen[real] = true;
    if (!root.exists(real + "/include/cuda.h") && !root.exists(real + "/version.json") &&
        !root.exists(real + "/bin/nvcc"))
      continue;
    ToolkitFacts toolkit;
    toolkit.path = real;
    toolkit.version = toolkit_version(root, real);
    toolkit.has_nvcc = root.exists(real + "/bin/nvcc");
    toolkit.has_cccl_folder = root.is_folder(real + "/include/cccl");
    toolkit.is_default = standard.is(real);
    software.toolkits.push_back(toolkit);
  }
}

Fact<std::string> first_on_path(const Root& root,
                                const Facts& facts,
                                const std::vector<std::string>& programs) {
  std::string path = facts.process.variable("PATH");
  if (path.empty()) path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const std::string& folder : split(path, ':')) {
    if (folder.empty() || folder[0] != '/') continue;
    for (const std::string& program : programs)
      if (root.exists(folder + "/" + program)) return folder + "/" + program;
  }
  return Fact<std::string>::absent();
}

Fact<std::string> nvcc_of(const Root& root, const Facts& facts) {
  const std::string home = facts.process.variable("CUDA_HOME");
  if (!home.empty() && root.exists(home + "/bin/nvcc")) return home + "/bin/nvcc";
  return first_on_path(root, facts, {"nvcc"});
}

bool has_mlx5_link(const Root& root) {
  for (const char* folder : kLibraryFolders)
    if (root.exists(std::string(folder) + "/libmlx5.so")) return true;
  return false;
}

Fact<std::string> first_existing(const Root& root, const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (root.exists(path)) return path;
  return Fact<std::string>::absent();
}

// dpkg's status file: paragraphs of "Package:", "Status:", "Version:".
Fact<std::map<std::string, std::string>> packages_of(const Root& root) {
  using Versions = std::map<std::string, std::string>;
  const std::string local = root.local_path("/var/lib/dpkg/status");
  if (local.empty()) return Fact<Versions>::absent();
  Versions versions;
  std::string package;
  std::string version;
  bool is_installed = false;
  const auto finish = [&] {
    for (const char* name : kPackages)
      if (is_installed && package == name) versions[package] = version;
    package.clear();
    is_installed = false;
  };
  for (const std::string& line : lines_of(root.read("/var/lib/dpkg/status").value_or(""))) {
    if (line.empty()) finish();
    if (line.starts_with("Package: ")) package = line.substr(9);
    if (line.starts_with("Version: ")) version = line.substr(9);
    if (line.starts_with("Status: ")) is_installed = line.ends_with(" installed");
  }
  finish();
  return versions;
}

}  // namespace

void gather_toolchain(const Root& root, Facts& facts) {
  SoftwareFacts& software = facts.software;
  gather_toolkits(root, software);
  software.nvcc = nvcc_of(root, facts);
  software.cxx = first_on_path(root, facts, {"g++", "c++"});
  software.has_mlx5_link = has_mlx5_link(root);
  software.gdrcopy_header =
      first_existing(root, {facts.process.variable("GDRCOPY_HOME") + "/include/gdrapi.h",
                            "/opt/deepep/gdrcopy/include/gdrapi.h", "/usr/local/include/gdrapi.h",
                            "/usr/include/gdrapi.h", "/usr/local/gdrcopy/include/gdrapi.h"});
  software.gib = first_existing(
      root, {"/usr/local/gib", "/home/kubernetes/bin/gib", "/host/home/kubernetes/bin/gib"});
  software.efa_folder = first_existing(root, {"/opt/amazon/efa"});
  software.packages = packages_of(root);
}

}  // namespace ferry::ops::gathering
