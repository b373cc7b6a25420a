#include <fmt/format.h>

#include <algorithm>

#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

bool has_checkout(const Facts& facts) { return !facts.software.checkouts.empty(); }

const ToolkitFacts* newest_default(const Facts& facts) {
  for (const ToolkitFacts& toolkit : facts.software.toolkits)
    if (toolkit.is_default) return &toolkit;
  return nullptr;
}

Judgement judge_headers(const Facts& facts, const DoctorOptions& options) {
  const auto libraries = libraries_of(facts, "nvshmem");
  std::string folder = facts.process.variable("NVSHMEM_DIR");
  if (!folder.empty()) {
    for (const LibraryFacts* library : libraries) {
      if (!library->file.starts_with(folder + "/") && !library->path.starts_with(folder + "/"))
        continue;
      if (library->has_headers)
        return ok("NVSHMEM_DIR=" + folder + " has headers and the device library");
      return fail("NVSHMEM_DIR=" + folder + " lacks include/nvshmem.h or lib/libnvshmem_device.a");
    }
    return fail("NVSHMEM_DIR=" + folder + " holds no libnvshmem_host");
  }
  if (!has_checkout(facts))
    return not_applicable("no source tree of DeepEP, and NVSHMEM_DIR is unset");
  for (const LibraryFacts* library : libraries)
    if (library->found_by == "python" && library->has_headers)
      return ok("the wheel's: " + library->path);
  return fail_across_nodes(options,
                           "NVSHMEM_DIR is unset, and no NVSHMEM wheel with headers was found");
}

Judgement judge_mlx5_link(const Facts& facts, const DoctorOptions&) {
  const auto libraries = libraries_of(facts, "mlx5");
  if (libraries.empty()) return not_applicable("no libmlx5");
  if (!has_mlx5(facts)) return not_applicable("no mlx5 device");
  if (!facts.software.has_mlx5_link.is_known())
    return unknown("the library folders were not looked through", "find / -name libmlx5.so");
  if (facts.software.has_mlx5_link.value()) return ok("libmlx5.so is there");
  const std::string& path = libraries.front()->path;
  return warn(path + " has no unversioned libmlx5.so beside it",
              fmt::format("ln -s libmlx5.so.1 {}/libmlx5.so, or install libibverbs-dev",
                          path.substr(0, path.rfind('/'))));
}

Judgement judge_cccl(const Facts& facts, const DoctorOptions&) {
  const ToolkitFacts* toolkit = newest_default(facts);
  if (!has_checkout(facts) || toolkit == nullptr || !toolkit->has_cccl_folder)
    return not_applicable("no DeepEP tree beside a CUDA whose headers lie in include/cccl");
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH"})
    if (contains(facts.process.variable(name), "include/cccl"))
      return ok(fmt::format("{}={}", name, facts.process.variable(name)));
  return warn(toolkit->path + "/include/cccl is on no include path",
              fmt::format("export CPATH={}/include/cccl:$CPATH", toolkit->path));
}

Judgement judge_compiler(const Facts& facts, const DoctorOptions&) {
  if (!has_checkout(facts) && facts.software.extensions.empty())
    return not_applicable("no DeepEP was found");
  std::vector<std::string> missing;
  if (!facts.software.nvcc.is_known()) missing.emplace_back("nvcc (CUDA_HOME and PATH)");
  if (!facts.software.cxx.is_known()) missing.emplace_back("g++ (PATH)");
  if (!missing.empty()) return warn("missing: " + join(missing, ", "));
  const std::string home = facts.process.variable("CUDA_HOME");
  if (home.empty())
    return warn("CUDA_HOME is unset; nvcc is " + facts.software.nvcc.value(),
                "export CUDA_HOME=/usr/local/cuda");
  return ok(fmt::format("{}, {}", facts.software.nvcc.value(), facts.software.cxx.value()));
}

Judgement judge_standard(const Facts& facts, const DoctorOptions&) {
  const PythonPackage* torch = package(facts, "torch");
  if (!has_checkout(facts) || torch == nullptr)
    return not_applicable("no DeepEP tree beside a torch");
  for (const CheckoutFacts& checkout : facts.software.checkouts)
    if (checkout.cxx_standard.is_known() && checkout.cxx_standard.value() == "17" &&
        is_at_least(torch->version, "2.14"))
      return fail(fmt::format("{}/setup.py passes -std=c++17, torch {} needs C++20", checkout.path,
                              torch->version));
  return ok("torch " + torch->version);
}

Judgement judge_gdrcopy(const Facts& facts, const DoctorOptions&) {
  if (!has_mlx5(facts) || !has_gpu(facts)) return not_applicable("no mlx5 device beside a GPU");
  if (effective_nvshmem(facts) != nullptr) return not_applicable("NVSHMEM is built already");
  if (facts.host.cloud.is("gcp") && is_in_container(facts))
    return not_applicable("GKE's recipe builds NVSHMEM without it");
  if (facts.software.gdrcopy_header.is_known()) return ok(facts.software.gdrcopy_header.value());
  return warn("no gdrapi.h, and no NVSHMEM yet");
}

Judgement judge_owner(const Facts& facts, const DoctorOptions&) {
  for (const CheckoutFacts& checkout : facts.software.checkouts)
    if (checkout.is_build_writable.is(false))
      return fail(fmt::format("{}/build belongs to uid {}, this is uid {}", checkout.path,
                              checkout.build_uid.value_or(-1), facts.process.uid.value_or(-1)),
                  fmt::format("sudo chown -R $(id -u) {}/build", checkout.path));
  if (!has_checkout(facts)) return not_applicable("no source tree of DeepEP");
  return ok("no build folder that this user cannot write");
}

Judgement judge_extension(const Facts& facts, const DoctorOptions& options) {
  const std::string wanted = facts.process.variable("NVSHMEM_DIR");
  for (const ExtensionFacts& extension : facts.software.extensions) {
    if (!extension.has_nvshmem)
      return fail_across_nodes(
          options, extension.path + " has no symbol of NVSHMEM: built with it disabled");
    if (!extension.has_ibgda)
      return fail_across_nodes(
          options, extension.path + " holds no IBGDA state: its NVSHMEM was built without");
    if (!wanted.empty() && contains(extension.runpath, "site-packages") &&
        !contains(extension.runpath, wanted))
      return warn(fmt::format("{} looks for NVSHMEM in {}, NVSHMEM_DIR is {}", extension.path,
                              extension.runpath, wanted));
  }
  if (facts.software.extensions.empty()) return not_applicable("no built DeepEP was found");
  return ok(facts.software.extensions.front().path + " holds NVSHMEM with IBGDA");
}

// Machine code for sm_90 runs on 9.x of that or a later minor; compute_90 on 9.0 and everything
// newer.
bool runs_on(const std::string& arch, int capability) {
  const auto number = parse_whole(arch.substr(arch.find('_') + 1));
  if (!number) return false;
  if (arch.starts_with("compute_")) return *number <= capability;
  return *number / 10 == capability / 10 && *number <= capability;
}

Judgement judge_arch(const Facts& facts, const DoctorOptions&) {
  if (facts.software.extensions.empty() || !has_gpu(facts))
    return not_applicable("no built DeepEP beside a GPU");
  for (const GpuFacts& gpu : facts.gpu_list()) {
    if (!gpu.compute_capability.is_known())
      return unknown("the GPU's compute capability is not known",
                     "nvidia-smi --query-gpu=compute_cap --format=csv");
    std::string digits = gpu.compute_capability.value();
    digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
    const int capability = static_cast<int>(parse_whole(digits).value_or(0));
    for (const ExtensionFacts& extension : facts.software.extensions) {
      if (extension.archs.empty())
        return unknown(extension.path + " shows no CUDA code",
                       "cuobjdump --list-elf " + extension.path);
      const bool has_code =
          std::any_of(extension.archs.begin(), extension.archs.end(),
                      [&](const std::string& arch) { return runs_on(arch, capability); });
      if (!has_code)
        return fail(fmt::format("{} holds code for {}, GPU {} is sm_{}", extension.path,
                                join(extension.archs, ", "), gpu.index, capability),
                    fmt::format("rm -rf build *.so, then TORCH_CUDA_ARCH_LIST={} python3 setup.py "
                                "build_ext --inplace",
                                gpu.compute_capability.value()));
    }
  }
  return ok(facts.software.extensions.front().path + " holds code for " +
            join(facts.software.extensions.front().archs, ", "));
}

Judgement judge_symbols(const Facts& facts, const DoctorOptions&) {
  if (facts.software.extensions.empty()) return not_applicable("no built DeepEP was found");
  for (const ExtensionFacts& extension : facts.software.extensions)
    for (const std::string& symbol : extension.undefined)
      if (symbol.starts_with("__cudaRegisterLinkedBinary") || contains(symbol, "deep_ep"))
        return fail(extension.path + " expects '" + symbol + "', which only itself could define");
  return ok("no symbol of its own is missing");
}

constexpr Check kChecks[] = {
    {"build.nvshmem", "NVSHMEM to build against", Stack::kDeepEp,
     "NVSHMEM_DIR without include/nvshmem.h and lib/libnvshmem_device.a: fail; unset and no wheel: "
     "warn, "
     "across hosts fail",
     "without it DeepEP builds with internode and low latency disabled, and only warns",
     "export NVSHMEM_DIR=<prefix of an NVSHMEM with headers>", "A7 S8", judge_headers},
    {"build.mlx5-link", "libmlx5.so for the linker", Stack::kDeepEp,
     "libmlx5.so.1 without an unversioned link: warn",
     "cmake and ld look for libmlx5.so and do not find the library that is there",
     "apt-get install libibverbs-dev", "A8", judge_mlx5_link},
    {"build.cccl", "CUDA 13's C++ headers", Stack::kDeepEp,
     "headers in include/cccl and no include path with it: warn", "'cuda/std/tuple: No such file'",
     "export CPATH=$CUDA_HOME/include/cccl:$CPATH", "A1", judge_cccl},
    {"build.compiler", "compilers at run time", Stack::kDeepEp,
     "nvcc or g++ missing, or CUDA_HOME unset: warn",
     "DeepEP V2 and HybridEP compile kernels at the first step: '/bin/nvcc: not found'",
     "install nvcc and g++, and export CUDA_HOME", "A9 A14", judge_compiler},
    {"build.cxx-standard", "C++ standard of the extension", Stack::kDeepEp,
     "setup.py passes C++17 and torch is 2.14 or newer: fail", "'#error C++20 or later required'",
     "take the flag out of setup.py: torch passes its own", "A12 A13", judge_standard},
    {"build.gdrcopy", "GDRCopy's header", Stack::kDeepEp,
     "absent while NVSHMEM is still to be built: warn",
     "NVSHMEM's build stops with 'GDRCOPY_INCLUDE not found' (problem 2 of the guide), though a "
     "small patch "
     "builds without it",
     "build the library, then pass -DGDRCOPY_INCLUDE: ferry install --stack deepep --target "
     "bare-metal",
     "S2", judge_gdrcopy},
    {"build.owner", "owner of DeepEP's build folder", Stack::kDeepEp,
     "not writable by this user: fail",
     "'Permission denied' below build (problem 6 of the guide): it was built as root before",
     "sudo chown -R $(id -u) build", "S6", judge_owner},
    {"extension.nvshmem", "NVSHMEM inside DeepEP", Stack::kDeepEp,
     "no NVSHMEM symbols or no IBGDA state: warn, across hosts fail; a search path into "
     "site-packages beside "
     "NVSHMEM_DIR: warn",
     "'timeout (dispatch CPU)' with all counters at -1 (problem 8 of the guide)",
     "rm -rf build *.so in the tree, export NVSHMEM_DIR and rebuild", "S8 A4", judge_extension},
    {"extension.arch", "DeepEP's GPU architectures", Stack::kDeepEp,
     "no code for a GPU of this host: fail",
     "'named symbol not found' or 'no kernel image' (problem 7 of the guide)",
     "rebuild with TORCH_CUDA_ARCH_LIST of this GPU", "S7", judge_arch},
    {"extension.symbols", "DeepEP's own symbols", Stack::kDeepEp,
     "undefined symbols of a device link or of deep_ep itself: fail",
     "the import ends with 'undefined symbol': two builds in one tree, or sources left out",
     "rm -rf build *.so in the tree, then one single build command", "A5 A6", judge_symbols},
};

}  // namespace

std::span<const Check> build_checks() { return kChecks; }

}  // namespace ferry::ops
