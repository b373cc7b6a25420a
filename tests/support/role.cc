#include "support/role.hpp"

#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>

namespace ferry::support {
namespace {

std::map<std::string, Role>& roles() {
  static std::map<std::string, Role> all;
  return all;
}

}  // namespace

RoleEntry::RoleEntry(std::string name, Role role) {
  roles().emplace(std::move(name), std::move(role));
}

std::optional<int> run_role(int argc, char** argv) {
  constexpr std::string_view kFlag = "--role=";
  if (argc < 2 || !std::string_view(argv[1]).starts_with(kFlag)) return std::nullopt;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives the test
  const auto found = roles().find(argv[1] + kFlag.size());
  if (found == roles().end()) {
    std::fprintf(stderr, "no role '%s'\n", argv[1]);
    return 64;
  }
  try {
    return found->second({argv + 2, argv + argc});
  } catch (const std::exception& error) {
    say(std::string("uncaught ") + error.what());
    return 70;
  }
}

void say(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);  // one write: lines of ranks do not mix
  std::fflush(stdout);
}

std::string hear() {
  std::string line;
  std::getline(std::cin, line);
  return line;
}

}  // namespace ferry::support
