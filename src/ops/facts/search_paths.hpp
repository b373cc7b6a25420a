#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/facts/root.hpp"

namespace ferry::ops {

// Folders that hold Python packages, in the order in which a Python started here would look, then
// those of other interpreters. Each once.
[[nodiscard]] std::vector<std::string> python_folders(const Root& root, const Facts& facts);

// A folder (or, for LD_PRELOAD, a file) where shared libraries are looked for, and why.
struct LibraryFolder {
  std::string path;
  std::string found_by;  // "LD_PRELOAD", "LD_LIBRARY_PATH", "loader", "python", "prefix"
};
[[nodiscard]] std::vector<LibraryFolder> library_folders(const Root& root, const Facts& facts);

}  // namespace ferry::ops
