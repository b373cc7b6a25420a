#include "cli/facts_source.hpp"

#include <CLI/CLI.hpp>

namespace ferry::cli {

void add_facts_source(CLI::App& command, ops::FactsSource& source) {
  CLI::Option* root =
      command.add_option("--root", source.root, "Read the host whose files lie below this folder")
          ->type_name("DIR");
  command
      .add_option("--facts", source.files,
                  "Take what `ferry facts` wrote, or a folder of such files; repeat for several")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->excludes(root);
}

}  // namespace ferry::cli
