#pragma once

#include <string>
#include <vector>

#include "ops/install/step.hpp"
#include "ops/install/version_table.hpp"

namespace ferry::ops {

// Steps that several phases are made of.

// Non-interactive, waits for apt's lock, changes no package but those named and what they need.
[[nodiscard]] std::vector<Step> install_packages(const std::vector<std::string>& packages,
                                                 std::chrono::minutes deadline);

// Writes a file of the system: shows the difference first, keeps the former file beside it.
[[nodiscard]] std::vector<Step> write_system_file(const std::string& path,
                                                  const std::string& content);

// A folder of the user's below `prefix`, the commit of the table checked out in it. Without a pin
// the named reference is taken, and its commit printed.
[[nodiscard]] std::vector<Step> check_out(const VersionEntry& entry, const std::string& folder);

// A file, its checksum compared before anything reads it.
[[nodiscard]] std::vector<Step> download(const VersionEntry& entry, const std::string& path);

// Begins and ends a build: removes what an interrupted run left, and renames the finished folder
// into its place, keeping what stood there.
[[nodiscard]] Step remove_folder(const std::string& folder);
[[nodiscard]] Step move_into_place(const std::string& from, const std::string& to);
[[nodiscard]] Step make_folder(const std::string& folder);

// A step that runs as the user, with the title and words given.
[[nodiscard]] Step user_step(std::string title, std::vector<std::string> argv);
[[nodiscard]] Step root_step(std::string title, std::vector<std::string> argv);

}  // namespace ferry::ops
