// The phases that change the system: toolkit, NIC driver, driver option, packages.

#include <fmt/format.h>

#include "ops/install/phases.hpp"
#include "ops/install/recipes.hpp"
#include "ops/text.hpp"

namespace ferry::ops::phases {

namespace {

constexpr const char* kOptionFile = "/etc/modprobe.d/nvidia-peermapping.conf";
constexpr const char* kOptionLine = "options nvidia NVreg_RegistryDwords=PeerMappingOverride=0x1\n";

Phase by_hand(Phase phase, const HostView& host) {
  phase.status = PhaseStatus::kByHand;
  phase.reason =
      fmt::format("{}: the guide's packages are for Ubuntu 24.04 on x86_64", host.system());
  phase.steps.clear();
  phase.fetches.clear();
  return phase;
}

bool has_cuda_default(const HostView& host) {
  for (const ToolkitFacts& toolkit : host.facts().software.toolkits)
    if (toolkit.is_default) return true;
  return false;
}

std::vector<Step> cuda_steps(const HostView& host) {
  const std::string deb = host.below_prefix("download/cuda-keyring.deb");
  std::vector<Step> steps = {
      root_step("make the prefix", {"mkdir", "-p", "--", host.options().prefix + "/download"}),
  };
  for (Step step : download(version_entry("cuda-keyring"), deb)) {
    step.is_root = true;  // the prefix is handed over later, in the phase of the packages
    steps.push_back(step);
  }
  steps.push_back(root_step("add NVIDIA's repository and its key", {"dpkg", "-i", deb}));
  for (const Step& step : install_packages({"cuda-toolkit-12-9"}, std::chrono::minutes(60)))
    steps.push_back(step);
  if (!has_cuda_default(host) || host.options().switches_cuda)
    steps.push_back(root_step("lead /usr/local/cuda there",
                              {"ln", "-sfn", "/usr/local/cuda-12.9", "/usr/local/cuda"}));
  steps.push_back(user_step("see", {"/usr/local/cuda-12.9/bin/nvcc", "--version"}));
  steps.back().expected = "release 12.9";
  return steps;
}

// The line of another file that already sets registry options, and what it would have to become.
std::string merged_line(const DriverOption& option) {
  std::string text = trim(option.text);
  const std::size_t at = text.find("NVreg_RegistryDwords=");
  const std::size_t begin = at + 21;
  const bool is_quoted = begin < text.size() && text[begin] == '"';
  const std::string value = "PeerMappingOverride=0x1;";
  text.insert(begin + (is_quoted ? 1 : 0), value);
  return text;
}

const DriverOption* other_registry_option(const HostView& host) {
  for (const DriverOption& option : host.facts().driver.configured)
    if (contains(option.text, "NVreg_RegistryDwords=") && option.file != kOptionFile)
      return &option;
  return nullptr;
}

bool is_option_configured(const HostView& host) {
  for (const DriverOption& option : host.facts().driver.configured)
    if (contains(option.text, "NVreg_RegistryDwords=") && HostView::sets_peer_mapping(option.text))
      return true;
  return false;
}

}  // namespace

Phase cuda_toolkit(const HostView& host) {
  Phase phase{.number = 1, .id = "cuda-toolkit", .title = "CUDA toolkit 12.9"};
  phase.verify = "/usr/local/cuda-12.9/bin/nvcc --version says release 12.9";
  phase.fetches = {"cuda-keyring", "cuda-toolkit"};
  phase.steps = cuda_steps(host);
  const std::string home = host.cuda_home();
  if (contains(home, "12.9") && !has_cuda_default(host)) {
    phase.reason = home + " is there, and /usr/local/cuda leads nowhere";
    return phase;
  }
  if (!home.empty()) {
    phase.status = PhaseStatus::kDone;
    phase.reason = home;
    if (!contains(home, "12.9"))
      phase.warnings.push_back(home + " serves, but the guide's stack was built with 12.9");
    return phase;
  }
  phase.reason = "no toolkit 12.9 with nvcc (13 does not do: torch's cu129 refuses another major)";
  return host.is_guide_system() ? phase : by_hand(phase, host);
}

Phase doca_ofed(const HostView& host) {
  Phase phase{.number = 2, .id = "doca-ofed", .title = "DOCA-OFED 3.2.1 (NIC driver)"};
  phase.verify = "after the reboot: ls /sys/class/infiniband shows mlx5_0, mlx5_1, ...";
  phase.needs_reboot = true;
  phase.fetches = {"doca-key", "doca-ofed"};
  const VersionEntry& key = version_entry("doca-key");
  const VersionEntry& repository = version_entry("doca-ofed");
  const std::string file = host.below_prefix("download/doca.pub");
  const std::string keyring = "/etc/apt/keyrings/doca.gpg";
  phase.steps = {
      root_step("make the prefix", {"mkdir", "-p", "--", host.options().prefix + "/download"}),
      root_step("fetch the repository's key",
                {"wget", "--https-only", "--no-verbose", "-O", file, key.source})};
  Step show =
      user_step("compare the key's fingerprint", {"gpg", "--show-keys", "--with-colons", file});
  show.expected = key.pin;
  show.records = key.name;
  phase.steps.push_back(show);
  phase.steps.push_back(
      root_step("make the keyring folder", {"mkdir", "-p", "--", "/etc/apt/keyrings"}));
  phase.steps.push_back(root_step("put the key there",
                                  {"gpg", "--batch", "--yes", "--dearmor", "-o", keyring, file}));
  for (const Step& step :
       write_system_file("/etc/apt/sources.list.d/doca.list",
                         fmt::format("deb [signed-by={}] {} ./\n", keyring, repository.source)))
    phase.steps.push_back(step);
  for (const Step& step : install_packages({"doca-ofed"}, std::chrono::minutes(90)))
    phase.steps.push_back(step);
  if (!host.facts().hcas.is_known() || host.hca_names().empty()) {
    phase.status = PhaseStatus::kNotApplicable;
    phase.reason = "there is no RDMA device";
  } else if (!host.has_rocep()) {
    phase.status = PhaseStatus::kDone;
    phase.reason = join(host.hca_names(), " ");
  } else if (host.missing_packages({"doca-ofed"}).empty()) {
    phase.status = PhaseStatus::kRebootDue;
    phase.reason = "doca-ofed is installed, and the devices still have the names " +
                   join(host.hca_names(), " ");
  } else {
    phase.reason = join(host.hca_names(), " ");
    if (!host.is_guide_system()) return by_hand(phase, host);
  }
  return phase;
}

Phase driver_option(const HostView& host) {
  Phase phase{.number = 3, .id = "driver-option", .title = "driver option PeerMappingOverride=1"};
  phase.verify = "after the reboot: grep RegistryDwords /proc/driver/nvidia/params";
  phase.needs_reboot = true;
  phase.steps = write_system_file(kOptionFile, kOptionLine);
  phase.steps.push_back(root_step("put it into the initial ramdisk", {"update-initramfs", "-u"}));
  const DriverFacts& driver = host.facts().driver;
  const DriverOption* other = other_registry_option(host);
  if (driver.version.is_absent()) {
    phase.status = PhaseStatus::kByHand;
    phase.reason = "no NVIDIA driver is loaded; install one first";
  } else if (HostView::sets_peer_mapping(driver.running_registry_dwords.value_or(""))) {
    phase.status = PhaseStatus::kDone;
    phase.reason = "RegistryDwords: " + driver.running_registry_dwords.value();
  } else if (is_option_configured(host)) {
    phase.status = PhaseStatus::kRebootDue;
    phase.reason = "it stands in modprobe.d, and the running driver does not have it yet";
  } else if (other != nullptr) {
    phase.status = PhaseStatus::kStopped;
    phase.reason = fmt::format("{} sets NVreg_RegistryDwords already; its line must become: {}",
                               other->file, merged_line(*other));
  } else {
    phase.reason = "RegistryDwords: '" + driver.running_registry_dwords.value_or("") + "'";
  }
  return phase;
}

Phase gdrdrv_module(const HostView& host) {
  Phase phase{.number = 3, .id = "gdrdrv", .title = "GDRCopy's kernel module (CPU's NIC handler)"};
  phase.verify = "lsmod | grep gdrdrv, and /dev/gdrdrv is there";
  phase.warnings.push_back(
      "with the CPU's NIC handler DeepEP's internode dispatch has been seen to hang "
      "(known problem 4); the GPU's handler needs only a driver option");
  for (const Step& step : install_packages({"gdrdrv-dkms"}, std::chrono::minutes(30)))
    phase.steps.push_back(step);
  phase.steps.push_back(root_step("load it", {"modprobe", "gdrdrv"}));
  for (const Step& step : write_system_file("/etc/modules-load.d/gdrdrv.conf", "gdrdrv\n"))
    phase.steps.push_back(step);
  const auto loaded = host.facts().modules.loaded.value_or({});
  const auto& at_boot = host.facts().modules.at_boot;
  const bool is_loaded = std::find(loaded.begin(), loaded.end(), "gdrdrv") != loaded.end();
  const bool is_listed = std::find(at_boot.begin(), at_boot.end(), "gdrdrv") != at_boot.end();
  if (is_loaded && is_listed) phase.status = PhaseStatus::kDone;
  phase.reason = fmt::format("gdrdrv is {}loaded, and {}listed for the next boot",
                             is_loaded ? "" : "not ", is_listed ? "" : "not ");
  return phase;
}

// Nothing is done here: what the phases before began must have come true.
Phase after_reboot(const HostView& host, const std::vector<Phase>& before) {
  Phase phase{.number = 4, .id = "after-reboot", .title = "after the reboot"};
  phase.verify = "ferry doctor --multi-node";
  std::vector<std::string> waiting;
  std::vector<std::string> due;
  for (const Phase& earlier : before) {
    if (earlier.status == PhaseStatus::kRebootDue) waiting.push_back(earlier.id);
    if (earlier.needs_reboot && earlier.status == PhaseStatus::kDue) due.push_back(earlier.id);
  }
  std::vector<std::string> inactive;
  for (const HcaFacts& hca : host.facts().hca_list())
    for (const PortFacts& port : hca.ports)
      if (port.state.is_known() && !port.state.is("ACTIVE")) inactive.push_back(hca.name);
  if (!due.empty()) {
    phase.reason = "follows " + join(due, ", ");
  } else if (!waiting.empty()) {
    phase.status = PhaseStatus::kRebootDue;
    phase.reason = join(waiting, ", ") + " takes effect at the next boot";
  } else {
    phase.status = PhaseStatus::kDone;
    phase.reason = host.hca_names().empty() ? "no RDMA device" : join(host.hca_names(), " ");
    if (!inactive.empty()) phase.warnings.push_back("not ACTIVE: " + join(inactive, ", "));
  }
  return phase;
}

}  // namespace ferry::ops::phases
