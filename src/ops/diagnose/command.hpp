#pragma once

#include <string>
#include <vector>

namespace ferry::ops {

struct DiagnoseOptions {
  std::vector<std::string> logs;  // files; none or "-": standard input
  std::string facts;              // a file of `ferry facts`; empty: none
  bool is_json = false;
  bool is_causes = false;  // print the table of causes as Markdown instead
};

// Prints to stdout. 0: nothing known was found; 1: something was.
int run_diagnose(const DiagnoseOptions& options);

// The causes that diagnose knows, as the list in docs/troubleshooting.md.
[[nodiscard]] std::string causes_markdown();

}  // namespace ferry::ops
