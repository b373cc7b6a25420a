#include <array>
#include <set>

#include "ops/facts/gather.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

// Modules that such a stack speaks of.
constexpr std::array kModulesOfInterest = {
    "nvidia",  "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_core",
    "mlx5_ib", "ib_core",    "ib_uverbs",      "efa",         "irdma",  "erdma"};

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build ...": the
// version is the first word that is numbers and dots.
Fact<std::string> version_in(const std::string& text) {
  for (const std::string& word : words_of(text)) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && contains(word, "."))
      return word;
  }
  return Fact<std::string>::unknown("/proc/driver/nvidia/version names no version");
}

// Value of `name: value` in /proc/driver/nvidia/params, without quotes.
Fact<std::string> param(const Fact<std::string>& params, const std::string& name) {
  if (params.is_absent()) return Fact<std::string>::absent();
  if (params.is_unknown()) return Fact<std::string>::unknown(params.reason());
  for (const std::string& line : lines_of(params.value())) {
    if (!line.starts_with(name + ":")) continue;
    std::string value = trim(line.substr(name.size() + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    return value;
  }
  return Fact<std::string>::absent();
}

std::vector<DriverOption> configured_options(const Root& root) {
  std::vector<DriverOption> options;
  for (const char* folder :
       {"/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"}) {
    if (std::string(folder) == "/lib/modprobe.d" &&
        root.resolve(folder).value_or("") == "/usr/lib/modprobe.d")
      continue;
    for (const std::string& name : root.names(folder)) {
      if (!name.ends_with(".conf")) continue;
      const std::string file = std::string(folder) + "/" + name;
      for (const std::string& line : lines_of(root.read(file).value_or(""))) {
        const std::vector<std::string> words = words_of(line);
        if (words.size() >= 3 && words[0] == "options" && words[1] == "nvidia")
          options.push_back({file, trim(line)});
      }
    }
  }
  return options;
}

Fact<std::string> fabric_manager(const Root& root) {
  for (const char* path : {"/usr/bin/nv-fabricmanager", "/usr/local/bin/nv-fabricmanager"})
    if (root.exists(path)) return path;
  return Fact<std::string>::absent();
}

std::vector<std::string> modules_at_boot(const Root& root) {
  std::vector<std::string> files = {"/etc/modules"};
  for (const char* folder :
       {"/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d"})
    for (const std::string& name : root.names(folder))
      if (name.ends_with(".conf")) files.push_back(std::string(folder) + "/" + name);
  std::vector<std::string> modules;
  for (const std::string& file : files) {
    for (const std::string& line : lines_of(root.read(file).value_or(""))) {
      const std::vector<std::string> words = words_of(line);
      if (words.empty() || words[0][0] == '#' || words[0][0] == ';') continue;
      std::string module = words[0];
      for (char& c : module)
        if (c == '-') c = '_';
      modules.push_back(module);
    }
  }
  return modules;
}

Fact<std::vector<std::string>> loaded_modules(const Root& root) {
  using Names = std::vector<std::string>;
  const Fact<std::string> text = root.read("/proc/modules");
  const Fact<Names> built_in = root.list("/sys/module");
  if (!text.is_known() && !built_in.is_known())
    return Fact<Names>::unknown("neither /proc/modules nor /sys/module is readable");
  std::set<std::string> names;
  for (const std::string& line : lines_of(text.value_or(""))) {
    const std::vector<std::string> words = words_of(line);
    if (!words.empty()) names.insert(words[0]);
  }
  // /sys/module also has what is built into the kernel.
  for (const char* name : kModulesOfInterest)
    if (root.is_folder(std::string("/sys/module/") + name)) names.insert(name);
  return Names(names.begin(), names.end());
}

// Modules of interest that lie on disk for the running kernel, loaded or not.
Fact<std::vector<std::string>> modules_on_disk(const Root& root, const Fact<std::string>& kernel) {
  using Names = std::vector<std::string>;
  if (!kernel.is_known()) return Fact<Names>::unknown("the kernel's release is not known");
  const std::string path = "/lib/modules/" + kernel.value() + "/modules.dep";
  const Fact<std::string> text = root.read(path);
  if (!text.is_known()) return Fact<Names>::unknown(path + " is not readable");
  Names names;
  for (const std::string& line : lines_of(text.value())) {
    std::string file = line.substr(0, line.find(':'));
    file = file.substr(file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1);
    std::string name = file.substr(0, file.find(".ko"));
    for (char& c : name)
      if (c == '-') c = '_';
    for (const char* known : kModulesOfInterest)
      if (name == known) names.push_back(name);
  }
  return names;
}

}  // namespace

void gather_driver(const Root& root, Facts& facts) {
  DriverFacts& driver = facts.driver;
  const Fact<std::string> version = root.read("/proc/driver/nvidia/version");
  if (version.is_known()) {
    driver.version = version_in(version.value());
    driver.flavour = contains(version.value(), "Open Kernel Module") ? "open" : "proprietary";
  } else {
    driver.version = driver.flavour = version;
  }
  const Fact<std::string> params = root.read("/proc/driver/nvidia/params");
  driver.running_registry_dwords = param(params, "RegistryDwords");
  const Fact<std::string> stream_ops = param(params, "EnableStreamMemOPs");
  if (stream_ops.is_known()) driver.running_stream_mem_ops = stream_ops.value() == "1";
  if (stream_ops.is_absent()) driver.running_stream_mem_ops = Fact<bool>::absent();
  driver.configured = configured_options(root);
  driver.fabric_manager = fabric_manager(root);

  KernelModules& modules = facts.modules;
  modules.loaded = loaded_modules(root);
  for (const char* name : kModulesOfInterest) {
    const Fact<std::string> text = root.read_line(std::string("/sys/module/") + name + "/version");
    if (text.is_known()) modules.versions[name] = text.value();
  }
  modules.at_boot = modules_at_boot(root);
  modules.available = modules_on_disk(root, facts.host.kernel);
  modules.legacy_peermem = Fact<std::string>::absent();
  for (const char* name : {"nv_mem", "nv_mem_nc"}) {
    const std::string path = std::string("/sys/kernel/mm/memory_peers/") + name + "/version";
    if (root.exists(path)) modules.legacy_peermem = path;
  }
}

}  // namespace ferry::ops::gathering
