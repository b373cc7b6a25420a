// An environment from anywhere, as lines NAME=VALUE: read in whole, or refused with a ferry::Error
// of one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.hpp"
#include "boot/address.hpp"
#include "boot/host_list.hpp"
#include "boot/launch_env.hpp"
#include "ferry/error.hpp"

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Variables split(std::string_view text) {
  Variables variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  variables.erase("FERRY_SECRET_FILE");  // no files are opened here
  return variables;
}

template <typename Body>
void allow_errors(Body body) {
  try {
    body();
  } catch (const ferry::Error& error) {
    if (*error.what() == '\0') std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), num_bytes);
  const Variables variables = split(text);
  const ferry::Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  (void)ferry::explain_env(lookup);
  (void)ferry::boot::has_process_launcher(lookup);
  allow_errors([&] {
    const ferry::Env env = ferry::parse_env(lookup);
    const auto meeting = ferry::boot::read_launch_env(lookup, env);
    if (!meeting) return;
    if (meeting->rank < 0 || meeting->rank >= meeting->size) std::abort();
    if (meeting->size > 1) (void)ferry::boot::parse_address(meeting->address);
  });
  allow_errors([&] { (void)ferry::boot::expand_host_list(text); });
  allow_errors([&] { (void)ferry::boot::parse_address(std::string(text)); });
  return 0;
}
