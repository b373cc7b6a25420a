#pragma once

#include <string>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// Writes `text` to `path`, or, where that is a folder, to <host>.json in it; whole or not at all.
// Under a launcher that starts several ranks on a host, only local rank 0 writes: one file per
// host. Throws kSystem naming the file. Returns the file's path, "" where another rank writes it.
std::string store_facts(const std::string& text, const Facts& facts, const std::string& path);

}  // namespace ferry::ops
