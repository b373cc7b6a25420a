#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ferry::ops {

// What is fetched, from where, and how it is known to be the right thing.
enum class SourceKind {
  kFile,    // pin: sha256 of the file
  kGit,     // pin: commit
  kKey,     // pin: fingerprint of the signing key
  kWheel,   // pin: sha256 of the wheel
  kSigned,  // packages of a repository whose key is another row: nothing further to pin
};

// One row. An empty pin means that nobody has computed or read one at its source: such a download
// stops `--apply` unless `--accept-unpinned`, and then what came is recorded.
struct VersionEntry {
  const char* name;  // "gdrcopy"
  SourceKind kind;
  const char* version;  // as people say it
  const char* source;   // https only
  const char* pin;
  const char* from;  // where the pin was read or computed
};

[[nodiscard]] std::span<const VersionEntry> version_table();
// Throws kInternal for a name that the table does not have.
[[nodiscard]] const VersionEntry& version_entry(std::string_view name);
[[nodiscard]] bool is_pinned(const VersionEntry& entry) noexcept;

}  // namespace ferry::ops
