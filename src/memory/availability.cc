#include "memory/availability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/human.hpp"

namespace ferry::memory {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> read_text(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::int64_t> read_number(const fs::path& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end == text->data()) return std::nullopt;  // "max"
  return value;
}

// The number behind `key` in "key value" lines.
std::optional<std::int64_t> find_number(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// One cgroup folder's limit and what is left of it. File cache that can be dropped is not counted.
void apply_limit(Availability& out,
                 const fs::path& folder,
                 const char* limit_name,
                 const char* usage_name,
                 const char* cache_key) {
  const auto limit = read_number(folder / limit_name);
  const auto usage = read_number(folder / usage_name);
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // v1 writes a huge number for "none"
  if (!limit || !usage || *limit >= kNoLimit) return;
  const auto stat = read_text(folder / "memory.stat");
  const std::int64_t cache = stat ? find_number(*stat, cache_key).value_or(0) : 0;
  const std::int64_t left = std::max<std::int64_t>(0, *limit - *usage + cache);
  if (!out.cgroup_available_bytes || left < *out.cgroup_available_bytes) {
    out.cgroup_available_bytes = left;
    out.cgroup_limit_bytes = limit;
  }
}

// Walks from the process's own cgroup to the root: every level's limit holds.
void read_cgroups(Availability& out, const fs::path& root) {
  const auto membership = read_text(root / "proc/self/cgroup");
  if (!membership) return;
  std::istringstream lines(*membership);
  std::string line;
  while (std::getline(lines, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && controllers != "memory") continue;
    const fs::path base = root / (is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    fs::path relative = fs::path(line.substr(second + 1)).relative_path();
    for (;;) {
      if (is_v2)
        apply_limit(out, base / relative, "memory.max", "memory.current", "inactive_file");
      else
        apply_limit(out, base / relative, "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file");
      if (relative.empty()) break;
      relative = relative.parent_path();
    }
  }
}

}  // namespace

Availability read_availability(const fs::path& root) {
  Availability out;
  out.machine_available_bytes = INT64_MAX;
  if (const auto meminfo = read_text(root / "proc/meminfo"))
    if (const auto kib = find_number(*meminfo, "MemAvailable:"))
      out.machine_available_bytes = *kib * 1024;
  read_cgroups(out, root);
  out.available_bytes =
      std::min(out.machine_available_bytes, out.cgroup_available_bytes.value_or(INT64_MAX));
  return out;
}

std::string describe(const Availability& availability) {
  const std::string limit =
      availability.cgroup_limit_bytes
          ? fmt::format("cgroup limit {} ({} bytes)", human_bytes(*availability.cgroup_limit_bytes),
                        *availability.cgroup_limit_bytes)
          : "no cgroup limit";
  return fmt::format("{} available, {}", human_bytes(availability.available_bytes), limit);
}

}  // namespace ferry::memory
