#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/facts/root.hpp"
#include "ops/install/options.hpp"

namespace ferry::ops {

// What the checks of the phases ask of a host. Reads `root` below the prefix, and otherwise the
// facts.
class HostView {
 public:
  // All are borrowed.
  HostView(const Facts& facts, const Root& root, const InstallOptions& options)
      : facts_(facts), root_(root), options_(options) {}

  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  [[nodiscard]] const Root& root() const noexcept { return root_; }
  [[nodiscard]] const InstallOptions& options() const noexcept { return options_; }

  [[nodiscard]] std::string below_prefix(const std::string& name) const;
  // A file below the prefix's folder whose name begins so: "libgdrapi.so" also finds ".so.2".
  [[nodiscard]] bool has_file(const std::string& folder, const std::string& beginning) const;
  [[nodiscard]] std::string cuda_home() const;  // of 12.9, or of another 12.x from 12.8 on; "" else
  [[nodiscard]] std::string arch() const;       // "10.0"; that of the options, of the GPUs, or 10.0
  [[nodiscard]] bool is_guide_system() const;   // Ubuntu 24.04, x86_64: what the addresses are for
  [[nodiscard]] std::string system() const;     // "debian 12 on x86_64"
  [[nodiscard]] std::vector<std::string> missing_packages(
      const std::vector<std::string>& packages) const;
  [[nodiscard]] std::vector<std::string> hca_names() const;
  [[nodiscard]] bool has_rocep() const;
  // Asked for, or a system's Python has the stack's PyTorch and there is no environment of ours.
  [[nodiscard]] bool uses_system_python() const;
  [[nodiscard]] std::string python() const;  // the interpreter that the stack is installed for
  [[nodiscard]] std::string python_version_of(const std::string& package) const;  // "": not there
  // The registry option in a text of modprobe.d or of the running driver.
  [[nodiscard]] static bool sets_peer_mapping(const std::string& text);

 private:
  const Facts& facts_;
  const Root& root_;
  const InstallOptions& options_;
};

}  // namespace ferry::ops
