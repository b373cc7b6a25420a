#pragma once

#include "ops/facts/source.hpp"

namespace CLI {
class App;
}

namespace ferry::cli {

// Adds --root and --facts: every command that reads a host takes both.
void add_facts_source(CLI::App& command, ops::FactsSource& source);

}  // namespace ferry::cli
