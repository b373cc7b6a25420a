#include "ops/install/preflight.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "base/human.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kDiskBytes = 30 * kGiB;    // toolkit 8, torch 7, NVSHMEM's build 6, the rest
constexpr std::int64_t kJobBytes = 3 * kGiB / 2;  // of one nvcc

Finding make(const char* id,
             Verdict verdict,
             const char* title,
             std::string seen,
             const char* why,
             std::string fix) {
  return {id, verdict, title, std::move(seen), why, std::move(fix), "docs/deepep-install.md"};
}

bool is_due(const std::vector<Phase>& phases, const std::string& id) {
  return std::any_of(phases.begin(), phases.end(), [&](const Phase& phase) {
    return phase.id == id && phase.status == PhaseStatus::kDue;
  });
}

Finding check_disk(const HostView& host) {
  struct statvfs disk {};
  std::string folder = host.options().prefix;
  while (folder.size() > 1 && host.root().local_path(folder).empty())
    folder = folder.substr(0, std::max<std::size_t>(folder.rfind('/'), 1));
  const std::string local = host.root().local_path(folder);
  if (!host.root().is_live() || ::statvfs(local.c_str(), &disk) != 0)
    return make("install.disk", Verdict::kUnknown, "free disk space", "not known of a tree",
                "the stack takes about 30 GiB", "df -h " + host.options().prefix);
  const auto free_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  return make("install.disk", free_bytes >= kDiskBytes ? Verdict::kOk : Verdict::kFail,
              "free disk space", fmt::format("{} free below {}", human_bytes(free_bytes), folder),
              "the stack takes about 30 GiB", "free some, or choose another --prefix");
}

Finding check_memory(const HostView& host) {
  const Fact<std::int64_t>& available = host.facts().host.memory_available_bytes;
  if (!available.is_known())
    return make("install.memory", Verdict::kUnknown, "memory for compilers", available.reason(),
                "a compile job takes 1.5 GiB", "free -h");
  const std::int64_t jobs = std::max(host.facts().host.num_cpus, 1);
  return make("install.memory", *available >= jobs * kJobBytes ? Verdict::kOk : Verdict::kWarn,
              "memory for compilers",
              fmt::format("{} available, {} processors", human_bytes(*available), jobs),
              "ninja starts a compiler on each processor, each takes about 1.5 GiB",
              "CMAKE_BUILD_PARALLEL_LEVEL=" +
                  std::to_string(std::max<std::int64_t>(*available / kJobBytes, 1)));
}

Finding check_arch(const HostView& host) {
  const std::string arch = host.facts().host.arch.value_or("");
  return make("install.architecture",
              arch.empty()       ? Verdict::kUnknown
              : arch == "x86_64" ? Verdict::kOk
                                 : Verdict::kWarn,
              "processor architecture", arch.empty() ? "not known" : arch,
              "the guide's packages are for x86_64", "uname -m");
}

// DOCA-OFED compiles kernel modules that nobody signed for this machine.
Finding check_secure_boot(const HostView& host) {
  const Root& root = host.root();
  std::string variable;
  for (const std::string& name : root.names("/sys/firmware/efi/efivars"))
    if (name.starts_with("SecureBoot-")) variable = "/sys/firmware/efi/efivars/" + name;
  const Fact<std::string> value =
      variable.empty() ? Fact<std::string>::absent() : root.read(variable);
  const bool is_on = value.is_known() && !value->empty() && value->back() == '\1';
  return make(
      "install.secure-boot",
      is_on                ? Verdict::kFail
      : value.is_unknown() ? Verdict::kUnknown
                           : Verdict::kOk,
      "Secure Boot",
      is_on                ? "on"
      : value.is_unknown() ? value.reason()
                           : "off",
      "with it the kernel refuses modules that are not signed, DOCA-OFED's and gdrdrv's among them",
      "switch it off, or enrol a key for the modules: mokutil --sb-state");
}

// Processes that have a GPU or an RDMA device open: a driver is not changed under them.
Finding check_users(const HostView& host) {
  std::vector<std::string> users;
  for (const std::string& pid : host.root().names("/proc")) {
    if (!parse_whole(pid)) continue;
    for (const std::string& fd : host.root().names("/proc/" + pid + "/fd")) {
      const std::string target = host.root().resolve("/proc/" + pid + "/fd/" + fd).value_or("");
      if (target.starts_with("/dev/nvidia") || target.starts_with("/dev/infiniband/")) {
        users.push_back(fmt::format("{} ({})", pid,
                                    host.root().read_line("/proc/" + pid + "/comm").value_or("?")));
        break;
      }
    }
  }
  return make("install.device-users", users.empty() ? Verdict::kOk : Verdict::kFail,
              "processes that use a GPU or RDMA device",
              users.empty() ? "none seen" : join(users, ", "),
              "a driver is never replaced while a process uses it", "end them, or wait");
}

Finding check_default_route(const HostView& host) {
  std::string found;
  for (const InterfaceFacts& interface : host.facts().interfaces)
    for (const HcaFacts& hca : host.facts().hca_list())
      if (interface.has_default_route &&
          std::find(hca.netdevs.begin(), hca.netdevs.end(), interface.name) != hca.netdevs.end())
        found = interface.name + " of " + hca.name;
  return make("install.default-route", found.empty() ? Verdict::kOk : Verdict::kFail, "the way out",
              found.empty() ? "the default route does not run over an RDMA NIC"
                            : "the default route runs over " + found,
              "a new NIC driver renames that interface, and the machine cannot be reached",
              "go on from a console, with the network configuration prepared: --only");
}

}  // namespace

std::vector<Finding> check_before(const HostView& host, const std::vector<Phase>& phases) {
  std::vector<Finding> findings = {check_disk(host), check_memory(host), check_arch(host)};
  const bool changes_modules = is_due(phases, "doca-ofed") || is_due(phases, "gdrdrv");
  if (changes_modules || is_due(phases, "driver-option")) findings.push_back(check_users(host));
  if (changes_modules) {
    findings.push_back(check_secure_boot(host));
    findings.push_back(check_default_route(host));
  }
  return findings;
}

}  // namespace ferry::ops
