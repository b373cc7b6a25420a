// Reads commands of the ferry program, one a line, and parses each with the real command line
// without running it. Prints those that do not parse; exit 1 if there are any.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "cli/command.hpp"

int main() {
  int num_wrong = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    CLI::App app("", "ferry");
    ferry::cli::Invocation invocation;
    ferry::cli::add_commands(app, invocation);
    try {
      app.parse(line, true);
    } catch (const CLI::ParseError& error) {
      std::cout << line << ": " << error.what() << "\n";
      ++num_wrong;
    }
  }
  return num_wrong == 0 ? 0 : 1;
}
