#pragma once

#include "ops/facts/source.hpp"
#include "ops/install/options.hpp"

namespace ferry::ops {

struct InstallCommand {
  InstallOptions options;
  FactsSource source;  // only to plan: `--apply` acts on this host alone
  std::string state_folder;
  bool is_script = false;
  bool is_json = false;
};

// Prints the plan, or runs it. Exit codes as apply_phases.
int run_install(InstallCommand command);

}  // namespace ferry::ops
