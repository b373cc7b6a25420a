#include <algorithm>
#include <array>

#include "ops/facts/elf.hpp"
#include "ops/facts/gather.hpp"
#include "ops/facts/search_paths.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

constexpr std::array<std::string_view, 17> kPackages = {"torch",
                                                        "numpy",
                                                        "vllm",
                                                        "sglang",
                                                        "deep-ep",
                                                        "deep-ep-cpp",
                                                        "ferry-ep",
                                                        "uccl",
                                                        "uccl-ep",
                                                        "nixl",
                                                        "triton",
                                                        "mooncake-transfer-engine",
                                                        "pplx-kernels",
                                                        "flashinfer-python",
                                                        "nvshmem4py",
                                                        "megatron-core",
                                                        "transformer-engine"};

bool is_of_interest(std::string_view name) {
  return name.starts_with("nvidia-") || name.ends_with("-cu12") || name.ends_with("-cu13") ||
         std::find(kPackages.begin(), kPackages.end(), name) != kPackages.end();
}

// As package indexes compare names: lower case, and '-' for any of "-_.".
std::string normal_name(std::string name) {
  name = lower(name);
  for (char& c : name)
    if (c == '_' || c == '.') c = '-';
  return name;
}

// "Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == 'Linux'" pins nvidia-nccl-cu13.
std::vector<std::string> pins_of(const std::string& metadata) {
  std::vector<std::string> pins;
  for (const std::string& line : lines_of(metadata)) {
    if (line.empty()) break;  // the description begins
    if (!line.starts_with("Requires-Dist: ")) continue;
    std::string need = line.substr(15);
    need = trim(need.substr(0, need.find(';')));
    need.erase(std::remove_if(need.begin(), need.end(),
                              [](char c) { return c == '(' || c == ')' || c == ' '; }),
               need.end());
    const std::size_t equals = need.find("==");
    if (equals == std::string::npos) continue;
    const std::string name = normal_name(need.substr(0, std::min(equals, need.find('['))));
    if (is_of_interest(name)) pins.push_back(name + need.substr(equals));
  }
  return pins;
}

void gather_packages(const Root& root, const std::string& folder, SoftwareFacts& software) {
  for (const std::string& entry : root.names(folder)) {
    if (!entry.ends_with(".dist-info") && !entry.ends_with(".egg-info")) continue;
    const std::string stem = entry.substr(0, entry.rfind('.'));
    const std::size_t dash = stem.find('-');
    if (dash == std::string::npos) continue;
    const std::string name = normal_name(stem.substr(0, dash));
    if (!is_of_interest(name)) continue;
    std::string version = stem.substr(dash + 1);
    version = version.substr(0, version.find("-py"));
    const std::string metadata = root.read(folder + "/" + entry + "/METADATA").value_or("");
    software.python.push_back(
        {.name = name, .version = version, .path = folder, .pins = pins_of(metadata)});
  }
}

bool is_extension(const std::string& name) {
  return contains(name, ".so") &&
         (name.starts_with("deep_ep_cpp") || name.starts_with("deep_ep.") ||
          name.starts_with("uccl_ep") || name.starts_with("hybrid_ep_cpp"));
}

bool concerns_stack(const std::string& symbol) {
  return symbol.starts_with("nvshmem") || symbol.starts_with("nccl") ||
         symbol.starts_with("__cudaRegisterLinkedBinary") || contains(symbol, "deep_ep");
}

void gather_extension(const Root& root, const std::string& path, SoftwareFacts& software) {
  const Fact<std::string> file = root.resolve(path);
  for (const ExtensionFacts& other : software.extensions)
    if (file.is(other.path)) return;
  const Fact<ElfFile> elf = read_elf(root.local_path(path), {.with_archs = true});
  if (!elf.is_known()) return;
  ExtensionFacts extension;
  extension.path = file.value_or(path);
  extension.needed = elf->needed;
  extension.runpath = elf->runpath;
  extension.archs = elf->archs;
  for (const std::string& symbol : elf->undefined)
    if (concerns_stack(symbol)) extension.undefined.push_back(symbol);
  const auto names_nvshmem = [](const std::string& name) { return contains(name, "nvshmem"); };
  extension.has_ibgda = elf->has_ibgda_state;
  extension.nvshmem_version = elf->nvshmem_device_version;
  extension.has_nvshmem =
      extension.has_ibgda || extension.nvshmem_version.is_known() ||
      std::any_of(elf->needed.begin(), elf->needed.end(), names_nvshmem) ||
      std::any_of(elf->undefined.begin(), elf->undefined.end(), names_nvshmem) ||
      std::any_of(elf->exported.begin(), elf->exported.end(), names_nvshmem);
  software.extensions.push_back(extension);
}

void gather_extensions(const Root& root, const std::string& folder, SoftwareFacts& software) {
  for (const std::string& name : root.names(folder))
    if (is_extension(name)) gather_extension(root, folder + "/" + name, software);
}

Fact<std::string> head_commit(const Root& root, const std::string& checkout) {
  const Fact<std::string> head = root.read_line(checkout + "/.git/HEAD");
  if (!head.is_known() || !head->starts_with("ref: ")) return head;
  const std::string reference = head->substr(5);
  if (contains(reference, ".."))
    return Fact<std::string>::unknown("HEAD names '" + reference + "'");
  const Fact<std::string> loose = root.read_line(checkout + "/.git/" + reference);
  if (loose.is_known()) return loose;
  for (const std::string& line : lines_of(root.read(checkout + "/.git/packed-refs").value_or(""))) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() == 2 && words[1] == reference) return words[0];
  }
  return Fact<std::string>::unknown("no file of .git names the commit of " + reference);
}

// Whether one of the files says `mark`; unknown if none of them is there.
Fact<bool> any_says(const Root& root,
                    const std::vector<std::string>& files,
                    const std::string& mark) {
  bool was_read = false;
  for (const std::string& file : files) {
    const Fact<std::string> text = root.read(file);
    was_read = was_read || text.is_known();
    if (contains(text.value_or(""), mark)) return true;
  }
  if (!was_read) return Fact<bool>::unknown(files.front() + " is not there");
  return false;
}

Fact<std::string> cxx_standard(const Root& root, const std::string& checkout) {
  const Fact<std::string> text = root.read(checkout + "/setup.py");
  if (!text.is_known()) return text;
  const std::size_t at = text->find("-std=c++");
  if (at == std::string::npos) return Fact<std::string>::absent();
  return text->substr(at + 8, 2);
}

void gather_checkout(const Root& root,
                     const std::string& path,
                     const Facts& facts,
                     SoftwareFacts& software) {
  if (!root.exists(path + "/setup.py") || !root.is_folder(path + "/csrc/kernels") ||
      !root.is_folder(path + "/deep_ep"))
    return;
  CheckoutFacts checkout;
  checkout.path = root.resolve(path).value_or(path);
  for (const CheckoutFacts& other : software.checkouts)
    if (other.path == checkout.path) return;
  checkout.commit = head_commit(root, path);
  // What commit 29d31c0 added, and what PR #466 adds.
  checkout.has_qp_layout_fix = any_says(
      root,
      {path + "/csrc/kernels/ibgda_device.cuh", path + "/csrc/kernels/legacy/ibgda_device.cuh"},
      "ibgda_get_rc_impl");
  checkout.has_hca_mapping =
      any_says(root, {path + "/deep_ep/buffer.py", path + "/deep_ep/buffers/legacy.py"},
               "_setup_device_hca_mapping");
  checkout.cxx_standard = cxx_standard(root, path);
  checkout.build_uid = root.owner(path + "/build");
  checkout.is_build_writable = Fact<bool>::absent();
  if (checkout.build_uid.is_known()) {
    // Below a root, who may write is derived from owners: its files are not this user's to judge.
    const std::int64_t uid = facts.process.uid.value_or(0);
    checkout.is_build_writable = root.is_live() ? root.is_writable(path + "/build")
                                                : uid == 0 || uid == checkout.build_uid.value();
  }
  software.checkouts.push_back(checkout);
  gather_extensions(root, path, software);
  for (const std::string& name : root.names(path + "/build"))
    if (name.starts_with("lib")) gather_extensions(root, path + "/build/" + name, software);
}

}  // namespace

void gather_python(const Root& root, Facts& facts) {
  SoftwareFacts& software = facts.software;
  for (const std::string& folder : python_folders(root, facts)) {
    gather_packages(root, folder, software);
    gather_extensions(root, folder, software);
  }
  std::vector<std::string> candidates = split(facts.process.variable("PYTHONPATH"), ':');
  const std::string home = facts.process.variable("HOME");
  if (!home.empty()) candidates.push_back(home + "/DeepEP");
  candidates.insert(candidates.end(),
                    {"/opt/deepep/DeepEP", "/opt/deepep/deepep", "/opt/DeepEP", "/workspace/DeepEP",
                     "/root/DeepEP", "/DeepEP", "/sgl-workspace/DeepEP"});
  for (const std::string& path : candidates)
    if (!path.empty() && path[0] == '/') gather_checkout(root, path, facts, software);
}

}  // namespace ferry::ops::gathering
