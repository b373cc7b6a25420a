#pragma once

#include <span>
#include <string>

#include "bench/options.hpp"

namespace ferry::bench {

// `ferry bench`, whole: starts the ranks, or is one of them. `arguments` is this process's argv,
// for the ranks that are copies of it. Rank 0 writes the result to stdout. Returns the exit code
// (0, or 1 where the check failed; of started ranks the worst); throws ferry::Error.
[[nodiscard]] int run_bench(BenchOptions options, std::span<const std::string> arguments);

}  // namespace ferry::bench
