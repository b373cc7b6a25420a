#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/statvfs.h>

#include <map>

#include "base/env.hpp"
#include "ops/facts/environment.hpp"
#include "ops/facts/gather.hpp"
#include "ops/finding.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

// NAME=value lines, values quoted or not.
std::map<std::string, std::string> parse_os_release(const std::string& text) {
  std::map<std::string, std::string> values;
  for (const std::string& line : lines_of(text)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    values[line.substr(0, equals)] = value;
  }
  return values;
}

// "MemTotal:       16384 kB" of /proc/meminfo, in bytes.
Fact<std::int64_t> memory_line(const Fact<std::string>& meminfo, const std::string& name) {
  if (!meminfo.is_known()) return Fact<std::int64_t>::unknown("/proc/meminfo is not readable");
  for (const std::string& line : lines_of(meminfo.value())) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || words[0] != name + ":") continue;
    const auto kib = parse_whole(words[1]);
    if (kib && *kib >= 0 && *kib < (1LL << 50)) return *kib * 1024;
  }
  return Fact<std::int64_t>::unknown("/proc/meminfo has no " + name);
}

// libc.so.6 -> libc-2.31.so on old systems; from 2.34 on only its own text says it.
Fact<std::string> glibc_version(const Root& root) {
  if (root.is_live()) return std::string(::gnu_get_libc_version());
  for (const char* folder :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64",
        "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}) {
    const std::string path = fmt::format("{}/libc.so.6", folder);
    const Fact<std::string> text = root.read(path);
    if (!text.is_known()) continue;
    const std::string mark = "stable release version ";
    const std::size_t at = text->find(mark);
    if (at == std::string::npos) continue;
    std::string version = text->substr(at + mark.size(), 8);
    version = version.substr(0, version.find_first_not_of("0123456789."));
    while (!version.empty() && version.back() == '.') version.pop_back();
    if (!version.empty()) return version;
  }
  return Fact<std::string>::unknown("no C library below the root");
}

std::string arch_of(const Root& root) {
  if (root.exists("/lib/ld-linux-aarch64.so.1") || root.is_folder("/lib/aarch64-linux-gnu") ||
      root.is_folder("/usr/lib/aarch64-linux-gnu"))
    return "aarch64";
  return "x86_64";
}

Fact<std::string> cloud_of(const HostFacts& host) {
  if (host.vendor.is_unknown()) return Fact<std::string>::unknown(host.vendor.reason());
  const std::string vendor =
      lower(host.vendor.value_or("")) + " " + lower(host.product.value_or(""));
  if (contains(vendor, "google")) return "gcp";
  if (contains(vendor, "amazon")) return "aws";
  if (contains(vendor, "microsoft")) return "azure";
  return Fact<std::string>::absent();
}

Fact<std::string> container_of(const Root& root, const ProcessFacts& process) {
  if (process.has_variable("KUBERNETES_SERVICE_HOST") ||
      root.is_folder("/var/run/secrets/kubernetes.io"))
    return "kubernetes";
  if (root.exists("/.dockerenv")) return "docker";
  if (root.exists("/run/.containerenv")) return "podman";
  const Fact<std::string> manager = root.read_line("/run/systemd/container");
  if (manager.is_known() && !manager->empty()) return "other";
  const Fact<std::string> groups = root.read("/proc/1/cgroup");
  if (groups.is_unknown()) return Fact<std::string>::unknown(groups.reason());
  const std::string text = groups.value_or("");
  if (contains(text, "kubepods")) return "kubernetes";
  if (contains(text, "docker")) return "docker";
  if (contains(text, "libpod") || contains(text, "lxc")) return "other";
  return Fact<std::string>::absent();
}

// "CapEff:\t000001ffffffffff" of /proc/self/status.
Fact<std::string> status_word(const Fact<std::string>& status, const std::string& name) {
  if (!status.is_known()) return Fact<std::string>::unknown("/proc/self/status is not readable");
  for (const std::string& line : lines_of(status.value())) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() >= 2 && words[0] == name + ":") return words[1];
  }
  return Fact<std::string>::unknown("/proc/self/status has no " + name);
}

template <typename Parse>
Fact<std::int64_t> number_of(const Fact<std::string>& word, const Parse& parse) {
  if (!word.is_known()) return Fact<std::int64_t>::unknown(word.reason());
  const auto number = parse(word.value());
  if (!number) return Fact<std::int64_t>::unknown("'" + word.value() + "' is no number");
  return static_cast<std::int64_t>(*number);
}

Fact<std::int64_t> limit_of(const std::string& word) {
  if (word == "unlimited") return -1;
  const auto bytes = parse_whole(word);
  if (!bytes) return Fact<std::int64_t>::unknown("'" + word + "' is no limit");
  return *bytes;
}

void gather_memlock(const Root& root, ProcessFacts& process) {
  const Fact<std::string> limits = root.read("/proc/self/limits");
  if (!limits.is_known()) return;
  for (const std::string& line : lines_of(limits.value())) {
    if (!line.starts_with("Max locked memory")) continue;
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 5) continue;
    process.memlock_soft_bytes = limit_of(words[3]);
    process.memlock_hard_bytes = limit_of(words[4]);
  }
}

// "size=64g" or "size=65536k" among a mount's options.
Fact<std::int64_t> mount_size(const std::string& options) {
  for (const std::string& option : split(options, ',')) {
    if (!option.starts_with("size=")) continue;
    std::string number = option.substr(5);
    std::int64_t unit = 1;
    if (!number.empty()) {
      const char last = lower(number.substr(number.size() - 1))[0];
      if (last == 'k') unit = std::int64_t{1} << 10;
      if (last == 'm') unit = std::int64_t{1} << 20;
      if (last == 'g') unit = std::int64_t{1} << 30;
      if (unit > 1) number.pop_back();
    }
    const auto value = parse_whole(number);
    if (value && *value >= 0 && *value < (1LL << 40)) return *value * unit;
  }
  return Fact<std::int64_t>::unknown("the mount of /dev/shm names no size");
}

void gather_shm(const Root& root, ProcessFacts& process) {
  if (root.is_live()) {
    struct statvfs status {};
    if (::statvfs("/dev/shm", &status) != 0) {
      process.shm_total_bytes = process.shm_free_bytes = Fact<std::int64_t>::absent();
      return;
    }
    process.shm_total_bytes = static_cast<std::int64_t>(status.f_blocks * status.f_frsize);
    process.shm_free_bytes = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
    return;
  }
  const Fact<std::string> mounts = root.read("/proc/self/mounts");
  if (!mounts.is_known()) return;
  process.shm_total_bytes = Fact<std::int64_t>::absent();
  for (const std::string& line : lines_of(mounts.value())) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() >= 4 && words[1] == "/dev/shm") process.shm_total_bytes = mount_size(words[3]);
  }
}

void gather_environment(const Root& root, ProcessFacts& process) {
  const Fact<std::string> recorded =
      root.is_live() ? Fact<std::string>::absent() : root.read("/proc/self/environ");
  if (recorded.is_known()) {
    process.environment_source = "/proc/self/environ below the root";
    process.environment = parse_environ(recorded.value());
    return;
  }
  process.environment_source = "process";
  std::string text;
  for (const std::string& entry : child_environment({})) text += entry + '\0';
  process.environment = parse_environ(text);
}

}  // namespace

void gather_host(const Root& root, Facts& facts) {
  HostFacts& host = facts.host;
  host.name = root.is_live() ? this_host() : root.read_line("/etc/hostname").value_or("unnamed");
  host.machine_id = root.read_line("/etc/machine-id");
  host.boot_id = root.read_line("/proc/sys/kernel/random/boot_id");
  Fact<std::string> release = root.read("/etc/os-release");
  if (!release.is_known()) release = root.read("/usr/lib/os-release");
  if (release.is_known()) {
    const auto values = parse_os_release(release.value());
    const auto value_of = [&](const char* name) {
      const auto found = values.find(name);
      return found == values.end() ? Fact<std::string>::absent() : Fact<std::string>(found->second);
    };
    host.os_id = value_of("ID");
    host.os_version = value_of("VERSION_ID");
  }
  host.kernel = root.read_line("/proc/sys/kernel/osrelease");
  host.arch = arch_of(root);
  host.glibc = glibc_version(root);
  host.cmdline = root.read_line("/proc/cmdline");
  host.vendor = root.read_line("/sys/class/dmi/id/sys_vendor");
  host.product = root.read_line("/sys/class/dmi/id/product_name");
  host.cloud = cloud_of(host);
  const Fact<std::string> meminfo = root.read("/proc/meminfo");
  host.memory_total_bytes = memory_line(meminfo, "MemTotal");
  host.memory_available_bytes = memory_line(meminfo, "MemAvailable");
  for (const std::string& name : root.names("/sys/devices/system/cpu"))
    if (name.size() > 3 && name.starts_with("cpu") && parse_whole(name.substr(3))) ++host.num_cpus;
}

void gather_process(const Root& root, Facts& facts) {
  ProcessFacts& process = facts.process;
  gather_environment(root, process);
  process.container = container_of(root, process);
  const Fact<std::string> status = root.read("/proc/self/status");
  process.uid = number_of(status_word(status, "Uid"), parse_whole);
  process.effective_capabilities = number_of(status_word(status, "CapEff"), parse_hex);
  process.seccomp = number_of(status_word(status, "Seccomp"), parse_whole);
  gather_memlock(root, process);
  gather_shm(root, process);
}

}  // namespace ferry::ops::gathering
