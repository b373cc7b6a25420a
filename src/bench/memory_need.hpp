#pragma once

#include <cstdint>

#include "bench/batch.hpp"
#include "bench/options.hpp"
#include "ferry/exchange.hpp"
#include "memory/availability.hpp"

namespace ferry::bench {

// What a bench takes from the host memory of this machine, all its ranks together. Of the memory of
// GPUs the engine itself says what it lacks.
struct BenchMemory {
  int num_ranks = 0;                // on this machine
  std::int64_t input_bytes = 0;     // x, out, ids and weights
  std::int64_t delivery_bytes = 0;  // delivered rows, and y where it has memory of its own
  std::int64_t exchange_bytes = 0;  // control words and staging

  [[nodiscard]] std::int64_t total_bytes() const {
    return input_bytes + delivery_bytes + exchange_bytes;
  }
};

// The inputs alone, before there is a routing: enough to refuse what is far beyond the machine
// without building tables for it. `num_tokens` a rank.
[[nodiscard]] BenchMemory plan_inputs(const BenchOptions& options,
                                      int num_local_ranks,
                                      int num_ranks,
                                      std::int64_t num_tokens);

// Everything. In exact sizing rows are counted along the routing. With the CUDA engine the host
// holds the inputs while they are made, and what is delivered while it is checked. Throws
// kInvalidArgument where a product leaves 64 bits.
[[nodiscard]] BenchMemory plan_memory(const BenchOptions& options,
                                      const Batch& batch,
                                      const MemoryNeed& need,
                                      int num_local_ranks);

// Throws kNoResource with need, available memory and limits when the bench does not fit.
void check_memory(const BenchMemory& need, const memory::Availability& availability);

}  // namespace ferry::bench
