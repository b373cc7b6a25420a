// Compares docs/checks.md with the table of checks, or writes it anew.
//   checks_doc --check FILE | --write FILE
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "ops/checks/doctor.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: checks_doc --check FILE | --write FILE\n";
    return 2;
  }
  const std::string mode = argv[1];
  const std::string text = ferry::ops::checks_markdown();
  if (mode == "--write") {
    std::ofstream(argv[2]) << text;
    return 0;
  }
  std::ostringstream now;
  now << std::ifstream(argv[2]).rdbuf();
  if (now.str() == text) return 0;
  std::cerr << argv[2] << " differs from the table of checks in src/ops/checks; "
            << "try: ninja -C build update_checks_doc\n";
  return 1;
}
