#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"
#include "ops/topology/nic_plan.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kLeastNvshmem = "3.3.9";
constexpr const char* kV2Symbol = "ncclGetLsaDevicePointer";

// "3.5.19 (/opt/.../libnvshmem_host.so.3), 3.3.20 (...)".
std::string describe(const std::vector<const LibraryFacts*>& libraries) {
  std::vector<std::string> texts;
  for (const LibraryFacts* library : libraries)
    texts.push_back(fmt::format("{} ({})", library->version.value_or("?"), library->path));
  return join(texts, ", ");
}

const LibraryFacts* preloaded(const Facts& facts, const std::string& family) {
  for (const LibraryFacts* library : libraries_of(facts, family))
    if (library->found_by == "LD_PRELOAD") return library;
  return nullptr;
}

Judgement judge_nvshmem(const Facts& facts, const DoctorOptions&) {
  const auto libraries = libraries_of(facts, "nvshmem");
  const LibraryFacts* host = effective_nvshmem(facts);
  if (host == nullptr) return not_applicable("no libnvshmem_host was found");
  const std::vector<std::string> versions = versions_of(facts, "nvshmem");
  if (!host->version.is_known())
    return unknown(describe(libraries) + ": " + host->version.reason(), "nvshmem-info -a");
  for (const ExtensionFacts& extension : facts.software.extensions) {
    if (!extension.nvshmem_version.is_known()) continue;
    if (compare_versions(extension.nvshmem_version.value(), host->version.value()) != 0)
      return fail(fmt::format("the device half in {} is {}, the host half that loads is {} ({})",
                              extension.path, extension.nvshmem_version.value(),
                              host->version.value(), host->path));
  }
  if (versions.size() > 1 && preloaded(facts, "nvshmem") == nullptr)
    return fail(
        "several versions can be loaded, and none is preloaded: " + describe(libraries),
        "export LD_PRELOAD=<the libnvshmem_host.so.3 that DeepEP was built with>; or ferry env");
  return ok(fmt::format("{} ({}, by {})", host->version.value(), host->path, host->found_by));
}

Judgement judge_preload(const Facts& facts, const DoctorOptions&) {
  const std::string preload = facts.process.variable("LD_PRELOAD");
  if (preload.empty()) return not_applicable("LD_PRELOAD is unset");
  std::vector<std::string> missing;
  for (const std::string& part : split(preload, ':'))
    for (const std::string& file : words_of(part)) {
      const auto& libraries = facts.software.libraries;
      const bool is_there =
          std::any_of(libraries.begin(), libraries.end(),
                      [&](const LibraryFacts& library) { return library.path == file; });
      if (contains(file, "libnvshmem") && !is_there) missing.push_back(file);
    }
  if (missing.empty()) return ok("LD_PRELOAD=" + preload);
  return fail("LD_PRELOAD names " + join(missing, ", ") + ", which is not there");
}

Judgement judge_least(const Facts& facts, const DoctorOptions&) {
  const LibraryFacts* host = effective_nvshmem(facts);
  if (host == nullptr || !host->version.is_known())
    return not_applicable("no NVSHMEM of known version");
  const std::string seen = fmt::format("{} ({})", host->version.value(), host->path);
  return is_at_least(host->version.value(), kLeastNvshmem) ? ok(seen) : fail(seen);
}

Judgement judge_qp_layout(const Facts& facts, const DoctorOptions&) {
  const LibraryFacts* host = effective_nvshmem(facts);
  std::string version = host == nullptr ? "" : host->version.value_or("");
  for (const ExtensionFacts& extension : facts.software.extensions)
    if (extension.nvshmem_version.is_known()) version = extension.nvshmem_version.value();
  if (version.empty() || !is_at_least(version, "3.5"))
    return not_applicable(version.empty() ? "no NVSHMEM of known version" : "NVSHMEM " + version);
  for (const CheckoutFacts& checkout : facts.software.checkouts) {
    if (checkout.has_qp_layout_fix.is(false))
      return fail(fmt::format("NVSHMEM {} and {} at {} without commit 29d31c0", version,
                              checkout.path, checkout.commit.value_or("an unknown commit")));
    if (checkout.has_qp_layout_fix.is_unknown())
      return unknown(checkout.path + ": " + checkout.has_qp_layout_fix.reason(),
                     "grep ibgda_get_rc_impl in csrc/kernels");
  }
  if (!facts.software.checkouts.empty())
    return ok(fmt::format("NVSHMEM {}, and {} knows its layout", version,
                          facts.software.checkouts.front().path));
  if (!facts.software.extensions.empty())
    return unknown(fmt::format("NVSHMEM {}, and the source of {} was not found", version,
                               facts.software.extensions.front().path),
                   "ask whoever built it whether it holds commit 29d31c0");
  return not_applicable("no DeepEP was found");
}

Judgement judge_ibgda(const Facts& facts, const DoctorOptions& options) {
  const LibraryFacts* host = effective_nvshmem(facts);
  if (host == nullptr) return not_applicable("no libnvshmem_host was found");
  if (host->has_ibgda) return ok("nvshmem_transport_ibgda lies beside " + host->path);
  return fail_across_nodes(options, "no nvshmem_transport_ibgda beside " + host->path);
}

Judgement judge_address_handle(const Facts& facts, const DoctorOptions&) {
  const NicPlan plan = plan_nics(facts);
  const bool is_roce =
      has_mlx5(facts) && !plan.nics.empty() && plan.nics.front().link_layer == "Ethernet";
  const LibraryFacts* host = effective_nvshmem(facts);
  if (!is_roce || host == nullptr || !host->version.is_known())
    return not_applicable("no RoCE port, or no NVSHMEM of known version");
  const std::string seen = "NVSHMEM " + host->version.value() + " on RoCE";
  return is_at_least(host->version.value(), "3.5.19") ? ok(seen) : warn(seen);
}

bool expects_nccl(const ExtensionFacts& extension) {
  return std::any_of(extension.undefined.begin(), extension.undefined.end(),
                     [](const std::string& symbol) { return symbol.starts_with("nccl"); });
}

// "torch 2.11.0 pins nvidia-nccl-cu13==2.28.9": who will bring which NCCL back.
std::string nccl_pins(const Facts& facts) {
  std::vector<std::string> texts;
  for (const PythonPackage& found : facts.software.python)
    for (const std::string& pin : found.pins)
      if (pin.starts_with("nvidia-nccl-"))
        texts.push_back(fmt::format("{} {} pins {}", found.name, found.version, pin));
  return join(texts, "; ");
}

Judgement judge_nccl_symbols(const Facts& facts, const DoctorOptions&) {
  const auto libraries = libraries_of(facts, "nccl");
  for (const ExtensionFacts& extension : facts.software.extensions) {
    if (!expects_nccl(extension)) continue;
    if (libraries.empty()) return fail(extension.path + " needs NCCL, and none was found");
    const bool wants_v2 = std::find(extension.undefined.begin(), extension.undefined.end(),
                                    kV2Symbol) != extension.undefined.end();
    const LibraryFacts* first = libraries.front();
    const bool has_symbol =
        std::find(first->symbols.begin(), first->symbols.end(), kV2Symbol) != first->symbols.end();
    if (!wants_v2 || has_symbol)
      return ok(
          fmt::format("NCCL {} has what {} needs", first->version.value_or("?"), extension.path));
    const std::string pins = nccl_pins(facts);
    return fail(fmt::format("{} needs {}, which NCCL {} ({}) does not have{}", extension.path,
                            kV2Symbol, first->version.value_or("?"), first->path,
                            pins.empty() ? "" : "; " + pins));
  }
  return not_applicable("no extension that uses NCCL's device interface");
}

Judgement judge_nccl_copies(const Facts& facts, const DoctorOptions&) {
  const auto libraries = libraries_of(facts, "nccl");
  if (libraries.empty()) return not_applicable("no libnccl was found");
  const std::vector<std::string> versions = versions_of(facts, "nccl");
  if (versions.size() <= 1) return ok(describe(libraries));
  const bool is_v2 =
      std::any_of(facts.software.extensions.begin(), facts.software.extensions.end(), expects_nccl);
  const std::string seen = "several versions can be loaded: " + describe(libraries);
  return is_v2 ? fail(seen) : warn(seen);
}

Judgement judge_verbs(const Facts& facts, const DoctorOptions& options) {
  const auto libraries = libraries_of(facts, "mlx5");
  if (libraries.empty() || !has_mlx5(facts)) return not_applicable("no mlx5 device, or no libmlx5");
  const std::vector<std::string> nccl = versions_of(facts, "nccl");
  const bool has_gin = std::any_of(nccl.begin(), nccl.end(), [](const std::string& version) {
    return is_at_least(version, "2.28");
  });
  if (!has_gin) return not_applicable("no NCCL with device-initiated networking (2.28 or newer)");
  const LibraryFacts* library = libraries.front();
  if (!library->highest_tag.is_known())
    return unknown(library->path + " names no MLX5 version", "readelf -V " + library->path);
  const std::string seen =
      fmt::format("{} goes up to {}", library->path, library->highest_tag.value());
  if (is_at_least(after_mark(*library->highest_tag, "_"), "1.25")) return ok(seen);
  if (options.is_multi_node)
    return fail(
        seen, "install rdma-core or DOCA-OFED 25 or newer; if it stays, look at hca.fused as well");
  return warn(seen, "on one NVLink node disable GIN: export NCCL_GIN_ENABLE=0");
}

// "12.9" of torch's "2.9.1+cu129".
std::string torch_cuda(const Facts& facts) {
  const PythonPackage* torch = package(facts, "torch");
  if (torch == nullptr) return "";
  const std::size_t at = torch->version.find("+cu");
  if (at == std::string::npos || torch->version.size() < at + 5) return "";
  const std::string digits = torch->version.substr(at + 3);
  return digits.substr(0, 2) + "." + digits.substr(2);
}

std::string major_of(const std::string& version) { return version.substr(0, version.find('.')); }

const ToolkitFacts* default_toolkit(const Facts& facts) {
  for (const ToolkitFacts& toolkit : facts.software.toolkits)
    if (toolkit.is_default) return &toolkit;
  return facts.software.toolkits.empty() ? nullptr : &facts.software.toolkits.front();
}

Judgement judge_cuda_driver(const Facts& facts, const DoctorOptions&) {
  if (!facts.driver.version.is_known()) return not_applicable("no driver is loaded");
  if (!facts.driver.cuda_version.is_known())
    return unknown("the driver does not say which CUDA it serves", "nvidia-smi");
  const std::string serves = facts.driver.cuda_version.value();
  std::string runtime = torch_cuda(facts);
  std::string whose = "torch";
  if (const ToolkitFacts* toolkit = default_toolkit(facts); runtime.empty() && toolkit != nullptr) {
    runtime = toolkit->version.value_or("");
    whose = toolkit->path;
  }
  if (runtime.empty()) return ok("serves CUDA " + serves + "; no CUDA program was found");
  const std::string seen =
      fmt::format("the driver serves CUDA {}, {} is built for {}", serves, whose, runtime);
  if (compare_versions(major_of(runtime), major_of(serves)) > 0) return fail(seen);
  return ok(seen);
}

Judgement judge_cuda_set(const Facts& facts, const DoctorOptions&) {
  const std::string torch = torch_cuda(facts);
  const ToolkitFacts* toolkit = default_toolkit(facts);
  const Fact<std::string>& nvcc = facts.software.nvcc;
  if (nvcc.is("/usr/bin/nvcc") && toolkit != nullptr)
    return warn(fmt::format(
        "the nvcc on PATH is the distribution's /usr/bin/nvcc, the toolkit is {}", toolkit->path));
  if (torch.empty() || toolkit == nullptr || !toolkit->version.is_known())
    return not_applicable("no toolkit beside a torch that names its CUDA");
  const std::string seen = fmt::format("torch is built for CUDA {}, {} is {}", torch, toolkit->path,
                                       toolkit->version.value());
  return major_of(torch) == major_of(toolkit->version.value()) ? ok(seen) : fail(seen);
}

Judgement judge_wheels(const Facts& facts, const DoctorOptions&) {
  std::map<std::string, std::set<std::string>> majors;  // by name without its suffix
  for (const PythonPackage& found : facts.software.python)
    for (const char* suffix : {"-cu12", "-cu13"})
      if (found.name.ends_with(suffix))
        majors[found.name.substr(0, found.name.size() - 5)].insert(suffix);
  if (majors.empty()) return not_applicable("no wheel that names its CUDA");
  std::vector<std::string> mixed;
  for (const auto& [name, suffixes] : majors)
    if (suffixes.size() > 1) mixed.push_back(name);
  if (mixed.empty())
    return ok(fmt::format("{} wheels, none of them for two versions", majors.size()));
  return warn("both -cu12 and -cu13 of " + join(mixed, ", "));
}

Judgement judge_compat(const Facts& facts, const DoctorOptions&) {
  std::string compat;
  for (const std::string& folder : split(facts.process.variable("LD_LIBRARY_PATH"), ':'))
    if (contains(folder, "/compat")) compat = folder;
  if (compat.empty()) return not_applicable("no compat folder on LD_LIBRARY_PATH");
  for (const GpuFacts& gpu : facts.gpu_list())
    if (contains(gpu.name.value_or(""), "GeForce") || contains(gpu.name.value_or(""), "RTX"))
      return fail(compat + " is on LD_LIBRARY_PATH, and this is a " + gpu.name.value());
  return ok(compat + " on a data-centre GPU");
}

constexpr Check kChecks[] = {
    {"nvshmem.versions", "the two halves of NVSHMEM", Stack::kDeepEp,
     "the device half inside the extension against the host half that would load, and all copies "
     "against "
     "each other: different is fail, unless the right one is preloaded",
     "the device half is baked in when DeepEP is built; another host half says 'device library "
     "version "
     "does not match', or hangs without a word (problem 5 of the guide)",
     "rebuild DeepEP with NVSHMEM_DIR of the version that loads, or preload the one it was built "
     "with: ferry env",
     "B1 B2 S5", judge_nvshmem},
    {"nvshmem.preload", "the preloaded NVSHMEM", Stack::kDeepEp,
     "LD_PRELOAD names a file that is missing: fail",
     "the loader only complains and then takes another copy", "ferry env", "B2 S5", judge_preload},
    {"nvshmem.least", "NVSHMEM's version", Stack::kDeepEp, "older than 3.3.9: fail",
     "DeepEP does not build with it", "ferry install --stack deepep --target bare-metal", "S2",
     judge_least},
    {"nvshmem.qp-layout", "NVSHMEM 3.5 and DeepEP's commit", Stack::kDeepEp,
     "NVSHMEM 3.5 or newer and a DeepEP tree without commit 29d31c0 (PR #564): fail",
     "NVSHMEM 3.5 moved the queue pairs in its device state; without the commit every internode "
     "dispatch "
     "ends in 'timeout (dispatch CPU)'",
     "take commit 29d31c0 into the tree and rebuild, or use NVSHMEM 3.4.5", "B3 A3",
     judge_qp_layout},
    {"nvshmem.ibgda", "NVSHMEM with IBGDA", Stack::kDeepEp,
     "the library that would load has no IBGDA transport beside it: warn, across hosts fail",
     "such an NVSHMEM was built without IBGDA (problem 8 of the guide, 'timeout (dispatch CPU)', "
     "all counters -1)",
     "build NVSHMEM with NVSHMEM_IBGDA_SUPPORT=ON: ferry install --stack deepep --target "
     "bare-metal",
     "A4 S8", judge_ibgda},
    {"nvshmem.address-handle", "NVSHMEM on RoCE", Stack::kDeepEp,
     "older than 3.5.19 with RoCE ports: warn",
     "an uninitialised field of IBGDA's set-up gives 'Unable to create ah' on RoCE although "
     "perftest works",
     "use NVSHMEM 3.5.19 or newer", "D7", judge_address_handle},
    {"nccl.symbols", "NCCL as DeepEP V2 needs it", Stack::kDeepEp,
     "the extension expects ncclGetLsaDevicePointer and the NCCL that loads lacks it: fail, naming "
     "who pins it",
     "torch pins an older NCCL exactly; every pip install of it takes the newer one away",
     "pip install --no-deps 'nvidia-nccl-cu13>=2.30.4', and look again after every pip install",
     "B4 B6 A11", judge_nccl_symbols},
    {"nccl.copies", "copies of NCCL", Stack::kBoth,
     "several versions on the search path: warn, with DeepEP V2 fail",
     "the loader may take another copy than the one that was just installed",
     "remove the copies that are not wanted, or preload the one that is", "B5", judge_nccl_copies},
    {"verbs.mlx5", "user-space verbs", Stack::kDeepEp,
     "highest version tag of libmlx5 below MLX5_1.25 beside an NCCL with GIN: warn, across hosts "
     "fail",
     "NCCL's GIN misses calls for dmabuf and data-direct and reports type NONE: DeepEP V2 stops in "
     "its constructor",
     "install rdma-core or DOCA-OFED 25 or newer", "B7 D13", judge_verbs},
    {"cuda.driver", "driver and CUDA", Stack::kBoth,
     "the CUDA that programs are built for is of a newer major version: fail",
     "'cudaErrorInsufficientDriver'", "update the driver, or take a torch built for the older CUDA",
     "B9", judge_cuda_driver},
    {"cuda.toolkit", "one CUDA for torch and nvcc", Stack::kDeepEp,
     "different major versions: fail; nvcc is /usr/bin/nvcc: warn",
     "torch's extension builder refuses another major version, and mixed headers do not compile",
     "export CUDA_HOME and put its bin first on PATH: ferry env", "A2", judge_cuda_set},
    {"cuda.wheels", "wheels for one CUDA", Stack::kBoth, "-cu12 and -cu13 of one package: warn",
     "which of the two libraries loads depends on the order of imports",
     "pip uninstall one of the two", "B10", judge_wheels},
    {"cuda.compat", "CUDA's compat folder", Stack::kBoth,
     "on the loader's path with a GeForce or RTX card: fail",
     "'forward compatibility was attempted on non supported HW'",
     "take the compat folder off LD_LIBRARY_PATH", "B8", judge_compat},
};

}  // namespace

std::span<const Check> version_checks() { return kChecks; }

}  // namespace ferry::ops
