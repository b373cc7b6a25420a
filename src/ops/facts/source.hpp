#pragma once

#include <string>
#include <vector>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// Where a command takes its facts from: `--root DIR`, `--facts FILE...` or, with neither, this
// host.
struct FactsSource {
  std::string root = "/";
  std::vector<std::string> files;  // files written by `ferry facts`, or folders of them (*.json)
};

// The facts of one host; several files are kInvalidArgument.
[[nodiscard]] Facts load_facts(const FactsSource& source);
// One entry per file or, without files, the one host.
[[nodiscard]] std::vector<Facts> load_all_facts(const FactsSource& source);

}  // namespace ferry::ops
