// The installer over a tree instead of a host: facts come from ROOT, programs from PATH by their
// last name, state goes to STATE. Everything else is what `ferry install --apply` does.
//   install_driver ROOT STATE [identity=user|root|sudo] [nvshmem=...] [nic=...] [target=...]
//                  [longest_ms=N] [accept=1] [reboot=1] [only=PHASE]

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "ops/facts/gather.hpp"
#include "ops/install/runner.hpp"

namespace {

using namespace ferry::ops;

void take(const std::string& name,
          const std::string& value,
          InstallOptions& options,
          InstallWorld& world) {
  if (name == "identity") world.identity.is_root = value != "user";
  if (name == "identity" && value == "sudo") world.identity.sudo_user = "alice";
  if (name == "nvshmem") options.nvshmem = value;
  if (name == "nic") options.nic_handler = value;
  if (name == "target") options.target = value;
  if (name == "only") options.only.push_back(value);
  if (name == "accept") options.is_unpinned_accepted = true;
  if (name == "reboot") options.may_reboot = true;
  if (name == "longest_ms") world.longest_step = std::chrono::milliseconds(std::stoi(value));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    InstallOptions options;
    options.user = "alice";
    InstallWorld world;
    world.root = argv[1];
    world.state_folder = argv[2];
    world.gather = [&world] { return gather_facts(Root(world.root)); };
    world.say = [](const std::string& line) { fmt::print("{}\n", line); };
    world.locate = [](const std::string& name) { return name.substr(name.rfind('/') + 1); };
    for (int i = 3; i < argc; ++i) {
      const std::string word = argv[i];
      take(word.substr(0, word.find('=')), word.substr(word.find('=') + 1), options, world);
    }
    return apply_phases(options, world);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
