#include "ops/facts/search_paths.hpp"

#include <set>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// Collects what exists, each real folder once, in order.
class Folders {
 public:
  explicit Folders(const Root& root) : root_(root) {}

  // True if it was new.
  bool add(const std::string& path) {
    if (path.empty() || path[0] != '/' || !root_.is_folder(path)) return false;
    return seen_.insert(root_.resolve(path).value_or(path)).second;
  }

 private:
  const Root& root_;
  std::set<std::string> seen_;
};

// PREFIX/lib/python3.*/{site,dist}-packages.
std::vector<std::string> packages_below(const Root& root, const std::string& prefix) {
  std::vector<std::string> folders;
  if (prefix.empty()) return folders;
  for (const char* lib : {"/lib/", "/lib64/"}) {
    for (const std::string& name : root.names(prefix + lib)) {
      if (!name.starts_with("python3")) continue;
      for (const char* kind : {"/site-packages", "/dist-packages"})
        folders.push_back(prefix + lib + name + kind);
    }
  }
  return folders;
}

// /etc/ld.so.conf with its includes ("include /etc/ld.so.conf.d/*.conf").
std::vector<std::string> loader_folders(const Root& root) {
  std::vector<std::string> folders;
  std::vector<std::string> files = {"/etc/ld.so.conf"};
  for (const std::string& name : root.names("/etc/ld.so.conf.d"))
    if (name.ends_with(".conf")) files.push_back("/etc/ld.so.conf.d/" + name);
  for (const std::string& file : files) {
    for (const std::string& line : lines_of(root.read(file).value_or(""))) {
      const std::string folder = trim(line.substr(0, line.find('#')));
      if (!folder.empty() && folder[0] == '/') folders.push_back(folder);
    }
  }
  for (const char* folder :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    folders.emplace_back(folder);
  return folders;
}

}  // namespace

std::vector<std::string> python_folders(const Root& root, const Facts& facts) {
  const ProcessFacts& process = facts.process;
  std::vector<std::string> candidates = split(process.variable("PYTHONPATH"), ':');
  std::vector<std::string> prefixes = {process.variable("VIRTUAL_ENV"),
                                       process.variable("CONDA_PREFIX")};
  // An environment that is active in PATH alone.
  for (const std::string& folder : split(process.variable("PATH"), ':'))
    if (folder.ends_with("/bin")) prefixes.push_back(folder.substr(0, folder.size() - 4));
  const std::string home = process.variable("HOME");
  if (!home.empty()) prefixes.push_back(home + "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr", "/opt/deepep/venv", "/opt/conda"});
  for (const std::string& name : root.names("/opt")) prefixes.push_back("/opt/" + name);
  for (const std::string& prefix : prefixes)
    for (const std::string& folder : packages_below(root, prefix)) candidates.push_back(folder);
  Folders folders(root);
  std::vector<std::string> found;
  for (const std::string& folder : candidates)
    if (folders.add(folder)) found.push_back(folder);
  return found;
}

std::vector<LibraryFolder> library_folders(const Root& root, const Facts& facts) {
  const ProcessFacts& process = facts.process;
  std::vector<LibraryFolder> found;
  // The loader splits LD_PRELOAD at colons and at blanks.
  for (const std::string& part : split(process.variable("LD_PRELOAD"), ':'))
    for (const std::string& file : words_of(part)) found.push_back({file, "LD_PRELOAD"});

  Folders folders(root);
  const auto add = [&](const std::string& path, const char* found_by) {
    if (folders.add(path)) found.push_back({path, found_by});
  };
  for (const std::string& path : split(process.variable("LD_LIBRARY_PATH"), ':'))
    add(path, "LD_LIBRARY_PATH");
  for (const std::string& path : loader_folders(root)) add(path, "loader");
  for (const std::string& site : python_folders(root, facts)) {
    for (const std::string& name : root.names(site + "/nvidia"))
      add(site + "/nvidia/" + name + "/lib", "python");
    add(site + "/torch/lib", "python");
  }
  for (const std::string& prefix :
       {process.variable("NVSHMEM_DIR"), process.variable("NVSHMEM_HOME"),
        std::string("/opt/deepep/nvshmem"), std::string("/opt/deepep/gdrcopy"),
        process.variable("CONDA_PREFIX")})
    for (const char* lib : {"/lib", "/lib64"})
      if (!prefix.empty()) add(prefix + lib, "prefix");
  for (const char* prefix : {"/opt/amazon/efa", "/opt/amazon/ofi-nccl"})
    for (const char* lib : {"/lib", "/lib64"}) add(std::string(prefix) + lib, "prefix");
  if (facts.software.gib.is_known()) add(facts.software.gib.value() + "/lib64", "prefix");
  return found;
}

}  // namespace ferry::ops
