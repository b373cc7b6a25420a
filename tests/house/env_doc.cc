// Writes docs/env.md from the table of environment variables, or says that it is stale.
//   env_doc --check FILE | --write FILE
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "base/env.hpp"

int main(int argc, char** argv) {
  const std::string action = argc == 3 ? argv[1] : "";
  if (action != "--check" && action != "--write") {
    std::cerr << "usage: env_doc --check FILE | --write FILE\n";
    return 2;
  }
  const std::string path = argv[2];
  const std::string wanted = ferry::env_table_markdown();

  if (action == "--write") {
    std::ofstream file(path, std::ios::binary);
    file << wanted;
    file.close();
    if (!file) std::cerr << "cannot write '" << path << "'\n";
    return file ? 0 : 1;
  }

  std::ifstream file(path, std::ios::binary);
  std::stringstream found;
  found << file.rdbuf();
  if (file && found.str() == wanted) return 0;
  std::cout << "'" << path << "' differs from the table in src/base/env.cc; "
            << "try: cmake --build build --target update_env_doc\n";
  return 1;
}
