#include "ops/install/recipes.hpp"

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// The part of a reference that git fetch takes: "pull/466/head" and tags alike.
std::string reference_of(const VersionEntry& entry) {
  const std::string version = entry.version;
  return version.starts_with("pull/") ? version : "refs/tags/" + version;
}

}  // namespace

Step user_step(std::string title, std::vector<std::string> argv) {
  Step step;
  step.title = std::move(title);
  step.argv = std::move(argv);
  return step;
}

Step root_step(std::string title, std::vector<std::string> argv) {
  Step step = user_step(std::move(title), std::move(argv));
  step.is_root = true;
  return step;
}

std::vector<Step> install_packages(const std::vector<std::string>& packages,
                                   std::chrono::minutes deadline) {
  const std::vector<Variable> quiet = {{"DEBIAN_FRONTEND", "noninteractive"}};
  Step update =
      root_step("read the package lists", {"apt-get", "-o", "DPkg::Lock::Timeout=600", "update"});
  Step install = root_step("install " + join(packages, " "),
                           {"apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y",
                            "--no-install-recommends", "--no-upgrade", "--no-remove"});
  install.argv.insert(install.argv.end(), packages.begin(), packages.end());
  update.environment = install.environment = quiet;
  update.deadline = std::chrono::minutes(20);
  install.deadline = deadline;
  return {update, install};
}

std::vector<Step> write_system_file(const std::string& path, const std::string& content) {
  Step diff = user_step("show what changes in " + path, {"diff", "-uN", path, "-"});
  diff.may_fail = true;
  diff.input = content;
  Step write = root_step("write " + path + ", keeping a former one beside it",
                         {"install", "-D", "-m", "0644", "--backup=numbered", "/dev/stdin", path});
  write.input = content;
  return {diff, write};
}

std::vector<Step> check_out(const VersionEntry& entry, const std::string& folder) {
  Step fetch =
      user_step("fetch " + std::string(entry.version),
                {"git", "-C", folder, "fetch", "--depth", "1", entry.source, reference_of(entry)});
  Step compare = user_step("compare its commit with the pinned one",
                           {"git", "-C", folder, "rev-parse", "FETCH_HEAD^{commit}"});
  compare.expected = entry.pin;
  compare.records = entry.name;
  fetch.deadline = std::chrono::minutes(30);
  return {user_step("make a repository", {"git", "init", "--quiet", folder}), fetch, compare,
          user_step("check the commit out",
                    {"git", "-C", folder, "checkout", "--detach",
                     *entry.pin == '\0' ? std::string("FETCH_HEAD") : std::string(entry.pin)})};
}

std::vector<Step> download(const VersionEntry& entry, const std::string& path) {
  Step fetch = user_step("fetch " + std::string(entry.name),
                         {"wget", "--https-only", "--no-verbose", "-O", path, entry.source});
  fetch.deadline = std::chrono::minutes(30);
  Step sum = user_step("compare its sha256", {"sha256sum", path});
  sum.records = entry.name;
  sum.expected = entry.kind == SourceKind::kFile ? entry.pin : "";
  return {fetch, sum};
}

Step remove_folder(const std::string& folder) {
  return user_step("remove what an interrupted run left", {"rm", "-rf", "--", folder});
}

Step move_into_place(const std::string& from, const std::string& to) {
  return user_step("rename it into place, keeping what stood there",
                   {"mv", "--backup=numbered", "-T", "--", from, to});
}

Step make_folder(const std::string& folder) {
  return user_step("make " + folder, {"mkdir", "-p", "--", folder});
}

}  // namespace ferry::ops
