#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "ferry/version.hpp"

namespace ferry::cli {

void add_version_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("version", "Print the version");
  const auto is_json = std::make_shared<bool>(false);
  command->add_flag("--json", *is_json, "Print one JSON object");
  command->callback([&invocation, is_json] {
    invocation.action = [is_json] {
      if (*is_json)
        fmt::print("{}\n", nlohmann::ordered_json{{"schema", "ferry.version/1"},
                                                  {"ferry_version", version()}}
                               .dump(2));
      else
        fmt::print("ferry {}\n", version());
      return int{kFine};
    };
  });
}

}  // namespace ferry::cli
