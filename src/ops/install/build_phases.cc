// The phases that build below the prefix, as the user.

#include <fmt/format.h>

#include "ops/environment/script.hpp"
#include "ops/install/phases.hpp"
#include "ops/install/recipes.hpp"
#include "ops/text.hpp"

namespace ferry::ops::phases {

namespace {

constexpr const char* kPipTorch = "torch==2.9.1";

bool is_gke(const HostView& host) { return host.options().target == "gke-cos"; }

std::vector<std::string> package_list(const HostView& host) {
  if (is_gke(host))
    return {"cmake", "ninja-build", "libibverbs-dev", "rdma-core", "ibverbs-utils", "git"};
  return {"cmake",     "ninja-build",   "python3-pip", "python3-venv", "libibverbs-dev",
          "rdma-core", "ibverbs-utils", "git",         "g++",          "make"};
}

// "10.0" as CMake wants it: "100".
std::string cmake_arch(const std::string& arch) { return join(split(arch, '.'), ""); }

std::string cuda_home(const HostView& host) {
  const std::string home = host.cuda_home();
  return home.empty() ? "/usr/local/cuda-12.9" : home;
}

bool has_nvshmem(const HostView& host) {
  return host.has_file("nvshmem/include", "nvshmem.h") &&
         host.has_file("nvshmem/lib", "libnvshmem_host.so") &&
         host.has_file("nvshmem/lib", "nvshmem_transport_ibgda.so");
}

std::vector<Step> nvshmem_from_source(const HostView& host) {
  const std::string build = host.below_prefix("build/nvshmem");
  const std::string made = host.below_prefix("nvshmem.new");
  std::vector<Step> steps = {remove_folder(build), remove_folder(made)};
  for (const Step& step : check_out(version_entry("nvshmem"), build)) steps.push_back(step);
  Step configure = user_step(
      "configure NVSHMEM with IBGDA",
      {"cmake", "-S", build, "-B", build + "/out", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
       "-DCMAKE_INSTALL_PREFIX=" + host.below_prefix("nvshmem"),
       "-DCMAKE_CUDA_ARCHITECTURES=" + cmake_arch(host.arch()), "-DNVSHMEM_IBGDA_SUPPORT=ON",
       "-DNVSHMEM_MPI_SUPPORT=OFF", "-DNVSHMEM_SHMEM_SUPPORT=OFF", "-DNVSHMEM_BUILD_TESTS=OFF",
       "-DNVSHMEM_BUILD_EXAMPLES=OFF", "-DCUDA_HOME=" + cuda_home(host)});
  if (is_gke(host))
    configure.argv.push_back("-DNVSHMEM_USE_GDRCOPY=OFF");
  else
    configure.argv.push_back("-DGDRCOPY_INCLUDE=" + host.below_prefix("gdrcopy/include"));
  configure.environment = {{"CUDA_HOME", cuda_home(host)},
                           {"PATH", cuda_home(host) + "/bin:/usr/local/bin:/usr/bin:/bin"}};
  Step build_step =
      user_step("build NVSHMEM (30 minutes and more)", {"cmake", "--build", build + "/out"});
  build_step.environment = configure.environment;
  build_step.deadline = std::chrono::minutes(180);
  Step install = user_step("install it beside its place",
                           {"cmake", "--install", build + "/out", "--prefix", made});
  install.environment = configure.environment;
  steps.insert(steps.end(),
               {configure, build_step, install, move_into_place(made, host.below_prefix("nvshmem")),
                remove_folder(build)});
  return steps;
}

std::vector<Step> nvshmem_from_archive(const HostView& host) {
  const std::string file = host.below_prefix("download/nvshmem.tar.xz");
  const std::string made = host.below_prefix("nvshmem.new");
  std::vector<Step> steps = {remove_folder(made), make_folder(made),
                             make_folder(host.below_prefix("download"))};
  for (const Step& step : download(version_entry("nvshmem-archive"), file)) steps.push_back(step);
  steps.push_back(
      user_step("unpack it", {"tar", "-xJf", file, "-C", made, "--strip-components=1"}));
  steps.push_back(move_into_place(made, host.below_prefix("nvshmem")));
  return steps;
}

// A requirement with a hash, so that pip compares it.
std::vector<Step> nvshmem_from_wheel(const HostView& host) {
  const VersionEntry& entry = version_entry("nvshmem-wheel");
  const std::string folder = host.below_prefix("nvshmem-wheel");
  Step wheel = user_step("unpack the wheel, its sha256 compared",
                         {"python3", "-m", "pip", "install", "--no-deps", "--only-binary=:all:",
                          "--require-hashes", "--upgrade", "--target", folder, "-r", "/dev/stdin"});
  wheel.input = fmt::format("{} --hash=sha256:{}\n", entry.source, entry.pin);
  wheel.deadline = std::chrono::minutes(30);
  return {remove_folder(folder), wheel,
          user_step("lead nvshmem there",
                    {"ln", "-sfn", folder + "/nvidia/nvshmem", host.below_prefix("nvshmem")})};
}

std::vector<Step> nvshmem_from_deb(const HostView& host) {
  std::vector<Step> steps = install_packages(
      {"libnvshmem3-cuda-12", "libnvshmem3-dev-cuda-12", "libnvshmem3-static-cuda-12"},
      std::chrono::minutes(30));
  const std::string folder = host.below_prefix("nvshmem");
  steps.push_back(make_folder(folder));
  steps.push_back(user_step("lead to its headers",
                            {"ln", "-sfn", "/usr/include/nvshmem_12", folder + "/include"}));
  steps.push_back(
      user_step("lead to its libraries",
                {"ln", "-sfn", "/usr/lib/x86_64-linux-gnu/nvshmem/12", folder + "/lib"}));
  return steps;
}

std::vector<Step> nvshmem_from_conda(const HostView& host) {
  const std::string folder = host.below_prefix("nvshmem-conda");
  Step create = user_step("make an environment of it", {"conda", "create", "-y", "-p", folder,
                                                        version_entry("nvshmem-conda").source});
  create.deadline = std::chrono::minutes(30);
  Step list = user_step("say what came", {"conda", "list", "-p", folder, "--explicit", "--md5"});
  list.records = "nvshmem-conda";
  return {remove_folder(folder), create, list,
          user_step("lead nvshmem there", {"ln", "-sfn", folder, host.below_prefix("nvshmem")})};
}

struct NvshmemSource {
  const char* option;
  const char* entry;
  std::vector<Step> (*steps)(const HostView&);
};
constexpr NvshmemSource kNvshmemSources[] = {
    {"source", "nvshmem", nvshmem_from_source},
    {"archive", "nvshmem-archive", nvshmem_from_archive},
    {"wheel", "nvshmem-wheel", nvshmem_from_wheel},
    {"deb", "nvshmem-deb", nvshmem_from_deb},
    {"conda", "nvshmem-conda", nvshmem_from_conda},
};

bool is_deep_ep_built(const HostView& host) {
  return host.has_file("DeepEP", "deep_ep_cpp") || host.has_file("DeepEP/deep_ep", "deep_ep_cpp");
}

}  // namespace

Phase build_packages(const HostView& host) {
  Phase phase{.number = 5, .id = "packages", .title = "build packages, and the prefix"};
  const std::vector<std::string> missing = host.missing_packages(package_list(host));
  const std::string& prefix = host.options().prefix;
  const bool has_prefix = host.root().is_folder(prefix);
  phase.verify = "each package is there, " + prefix + " belongs to the user";
  phase.steps =
      install_packages(missing.empty() ? package_list(host) : missing, std::chrono::minutes(30));
  phase.steps.push_back(root_step("make the prefix", {"mkdir", "-p", "--", prefix}));
  // Not recursive: nothing below it becomes root's in the first place.
  phase.steps.push_back(root_step("hand it to the user",
                                  {"chown", host.options().user, prefix, prefix + "/download"}));
  phase.steps.insert(phase.steps.end() - 1, root_step("make the folder of downloads",
                                                      {"mkdir", "-p", "--", prefix + "/download"}));
  if (is_gke(host)) {
    const std::string folder = "/usr/lib/x86_64-linux-gnu/libmlx5.so";
    phase.steps.push_back(root_step("give cmake the unversioned name of libmlx5",
                                    {"ln", "-sf", "libmlx5.so.1", folder}));
  }
  const bool lacks_link = is_gke(host) && host.facts().software.has_mlx5_link.is(false);
  if (!host.facts().software.packages.is_known())
    phase.reason = "the list of packages could not be read";
  else if (!missing.empty())
    phase.reason = "missing: " + join(missing, " ");
  else if (!has_prefix)
    phase.reason = prefix + " is not there";
  else if (host.options().user_id >= 0 && !host.root().owner(prefix).is(host.options().user_id))
    phase.reason = prefix + " does not belong to " + host.options().user;
  else if (lacks_link)
    phase.reason = "there is no unversioned libmlx5.so";
  else
    phase.status = PhaseStatus::kDone;
  return phase;
}

Phase gdrcopy(const HostView& host) {
  Phase phase{.number = 6, .id = "gdrcopy", .title = "GDRCopy's library"};
  const std::string build = host.below_prefix("build/gdrcopy");
  const std::string made = host.below_prefix("gdrcopy.new");
  phase.verify = "libgdrapi.so and gdrapi.h below " + host.below_prefix("gdrcopy");
  phase.fetches = {"gdrcopy"};
  phase.steps = {remove_folder(build), remove_folder(made)};
  for (const Step& step : check_out(version_entry("gdrcopy"), build)) phase.steps.push_back(step);
  Step make = user_step("build and install the library only",
                        {"make", "-C", build, "-j", "prefix=" + made, "CUDA=" + cuda_home(host),
                         "lib", "lib_install"});
  make.deadline = std::chrono::minutes(30);
  phase.steps.insert(phase.steps.end(), {make, move_into_place(made, host.below_prefix("gdrcopy")),
                                         remove_folder(build)});
  if (host.has_file("gdrcopy/include", "gdrapi.h") &&
      host.has_file("gdrcopy/lib", "libgdrapi.so")) {
    phase.status = PhaseStatus::kDone;
  } else if (host.options().nvshmem != "source") {
    phase.status = PhaseStatus::kNotApplicable;
    phase.reason = "only NVSHMEM's build from source wants it";
  } else {
    phase.reason = "no libgdrapi.so and gdrapi.h below " + host.below_prefix("gdrcopy");
  }
  return phase;
}

Phase nvshmem(const HostView& host) {
  Phase phase{.number = 7, .id = "nvshmem", .title = "NVSHMEM with IBGDA"};
  for (const NvshmemSource& source : kNvshmemSources)
    if (host.options().nvshmem == source.option) {
      phase.fetches = {source.entry};
      phase.steps = source.steps(host);
      phase.title += fmt::format(" {} ({})", version_entry(source.entry).version, source.option);
    }
  phase.verify = host.below_prefix("nvshmem/bin/nvshmem-info") + " -a names IBGDA";
  if (has_nvshmem(host))
    phase.status = PhaseStatus::kDone;
  else
    phase.reason =
        "nvshmem.h, libnvshmem_host.so and nvshmem_transport_ibgda.so are not all below " +
        host.below_prefix("nvshmem");
  return phase;
}

Phase pytorch(const HostView& host) {
  Phase phase{.number = 8, .id = "pytorch", .title = "PyTorch 2.9.1+cu129 and NumPy"};
  phase.fetches = {"torch", "numpy"};
  const std::string torch = host.python_version_of("torch");
  const std::string numpy = host.python_version_of("numpy");
  phase.verify = host.python() + " -c 'import torch; print(torch.__version__, torch.version.cuda)'";
  if (!host.uses_system_python())
    phase.steps.push_back(user_step("make the environment " + host.below_prefix("venv"),
                                    {"python3", "-m", "venv", host.below_prefix("venv")}));
  std::vector<std::string> pip = {host.python(), "-m", "pip", "install", "--no-input"};
  if (host.uses_system_python()) pip.push_back("--break-system-packages");
  Step step = user_step("install PyTorch", pip);
  step.argv.insert(step.argv.end(), {kPipTorch, "--index-url", version_entry("torch").source});
  step.deadline = std::chrono::minutes(60);
  Step more = user_step("install NumPy and what builds extensions", pip);
  more.argv.insert(more.argv.end(), {"numpy", "setuptools", "wheel", "ninja"});
  more.deadline = std::chrono::minutes(30);
  Step list = user_step("say what came", {host.python(), "-m", "pip", "freeze", "--all"});
  list.records = "torch";
  phase.steps.insert(phase.steps.end(), {step, more, list});
  for (Step& each : phase.steps)
    each.is_root = host.uses_system_python() && each.argv[0] != "python3" && each.records.empty();
  if (torch == "2.9.1+cu129" && !numpy.empty()) {
    phase.status = PhaseStatus::kDone;
    phase.reason = "torch " + torch + ", numpy " + numpy;
  } else {
    phase.reason = torch.empty() ? "there is no torch for " + host.python() : "torch " + torch;
    if (numpy.empty()) phase.reason += ", no numpy";
  }
  return phase;
}

Phase deep_ep(const HostView& host) {
  Phase phase{.number = 9, .id = "deepep", .title = "DeepEP with the GPU-NIC mapping (PR #466)"};
  const std::string made = host.below_prefix("DeepEP.new");
  const std::string place = host.below_prefix("DeepEP");
  const VersionEntry& entry = version_entry("deepep");
  phase.fetches = {entry.name};
  phase.verify =
      "the build's output names " + host.below_prefix("nvshmem") + ", and import deep_ep works";
  phase.steps = {remove_folder(made)};
  for (const Step& step : check_out(entry, made)) phase.steps.push_back(step);
  Step build = user_step("build DeepEP", {host.python(), "setup.py", "build_ext", "--inplace"});
  build.folder = made;
  build.environment = {{"TORCH_CUDA_ARCH_LIST", host.arch()},
                       {"NVSHMEM_DIR", host.below_prefix("nvshmem")},
                       {"CUDA_HOME", cuda_home(host)}};
  build.deadline = std::chrono::minutes(90);
  build.expected = host.below_prefix("nvshmem");
  phase.steps.insert(phase.steps.end(), {build, move_into_place(made, place)});
  const bool has_mapping = contains(host.root().read(place + "/deep_ep/buffer.py").value_or(""),
                                    "_setup_device_hca_mapping");
  if (is_deep_ep_built(host) && has_mapping)
    phase.status = PhaseStatus::kDone;
  else
    phase.reason = is_deep_ep_built(host) ? "the tree has no _setup_device_hca_mapping"
                                          : "no built extension below " + place;
  for (const CheckoutFacts& tree : host.facts().software.checkouts)
    if (tree.path == place && tree.has_qp_layout_fix.is(false))
      phase.warnings.push_back(
          "this tree lacks commit 29d31c0: with NVSHMEM 3.5 or newer internode "
          "dispatch times out");
  return phase;
}

namespace {

// What ferry env prints, for the stack that the earlier phases have put there.
std::string make_environment_script(const HostView& host) {
  const StackChoice choice{
      .cuda_home = host.cuda_home().empty() ? "/usr/local/cuda-12.9" : host.cuda_home(),
      .nvshmem = host.below_prefix("nvshmem"),
      .checkout = host.below_prefix("DeepEP"),
      .nic_handler = host.options().nic_handler};
  return format_script(plan_environment(host.facts(), choice), host.facts().host.name);
}

}  // namespace

Phase environment_script(const HostView& host) {
  Phase phase{.number = 10, .id = "environment", .title = "environment script"};
  const std::string path = host.below_prefix("unified-env.sh");
  const std::string wanted = make_environment_script(host);
  const Fact<std::string> present = host.root().read(path);
  phase.verify = "source " + path + ", then python3 -c 'import deep_ep'";
  Step diff = user_step("show what changes", {"diff", "-uN", path, "-"});
  diff.may_fail = true;
  diff.input = wanted;
  Step write = user_step("write " + path,
                         {"install", "-m", "0644", "--backup=numbered", "/dev/stdin", path});
  write.input = wanted;
  phase.steps = {diff, write};
  if (present.is(wanted))
    phase.status = PhaseStatus::kDone;
  else
    phase.reason = present.is_known() ? path + " says something else" : path + " is not there";
  return phase;
}

}  // namespace ferry::ops::phases
