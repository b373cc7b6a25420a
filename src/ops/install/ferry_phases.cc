// The phases of FerryEP's own stack.

#include <filesystem>

#include "ops/install/phases.hpp"
#include "ops/install/recipes.hpp"
#include "ops/text.hpp"

namespace ferry::ops::phases {

namespace {

const std::vector<std::string>& ferry_packages() {
  static const std::vector<std::string> packages = {
      "g++",        "cmake",          "ninja-build",        "pkg-config",
      "libfmt-dev", "libsodium-dev",  "nlohmann-json3-dev", "libcli11-dev",
      "libelf-dev", "libpugixml-dev", "libre2-dev",         "libyaml-cpp-dev",
      "zlib1g-dev"};
  return packages;
}

Phase packages(const HostView& host) {
  Phase phase{.number = 1, .id = "packages", .title = "build packages, and the prefix"};
  const std::string& prefix = host.options().prefix;
  const std::vector<std::string> missing = host.missing_packages(ferry_packages());
  phase.verify = "each package is there";
  phase.steps =
      install_packages(missing.empty() ? ferry_packages() : missing, std::chrono::minutes(30));
  phase.steps.push_back(root_step("make the prefix", {"mkdir", "-p", "--", prefix}));
  phase.steps.push_back(root_step("hand it to the user", {"chown", host.options().user, prefix}));
  if (!host.facts().software.packages.is_known())
    phase.reason = "the list of packages could not be read";
  else if (!missing.empty())
    phase.reason = "missing: " + join(missing, " ");
  else if (!host.root().is_folder(prefix))
    phase.reason = prefix + " is not there";
  else
    phase.status = PhaseStatus::kDone;
  return phase;
}

Phase library(const HostView& host) {
  Phase phase{.number = 2, .id = "ferry", .title = "FerryEP: library, plugins, the ferry program"};
  const std::string source = host.options().source.empty() ? "." : host.options().source;
  const std::string build = host.below_prefix("build/ferry");
  const std::string made = host.below_prefix("ferry.new");
  phase.verify = host.below_prefix("ferry/bin/ferry") + " bench --check";
  Step configure =
      user_step("configure it", {"cmake", "-S", source, "-B", build, "-G", "Ninja",
                                 "-DCMAKE_BUILD_TYPE=Release", "-DFERRY_BUILD_TESTS=OFF",
                                 "-DCMAKE_INSTALL_PREFIX=" + host.below_prefix("ferry")});
  Step compile = user_step("build it", {"cmake", "--build", build});
  compile.deadline = std::chrono::minutes(90);
  phase.steps = {
      remove_folder(made), configure, compile,
      user_step("install it beside its place", {"cmake", "--install", build, "--prefix", made}),
      move_into_place(made, host.below_prefix("ferry"))};
  if (host.has_file("ferry/bin", "ferry") && host.has_file("ferry/lib", "libferry"))
    phase.status = PhaseStatus::kDone;
  else
    phase.reason = "no bin/ferry and lib/libferry below " + host.below_prefix("ferry");
  return phase;
}

}  // namespace

std::vector<Phase> ferry_stack(const HostView& host) { return {packages(host), library(host)}; }

}  // namespace ferry::ops::phases
