#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/exchange.hpp"
#include "ferry/ferry.h"

namespace ferry::capi {

// Fills the caller's struct and, where it is given, the array of waits. Throws kInvalidArgument,
// naming both lengths, where the array's length is not the number of ranks.
void write_counters(const Counters& counters,
                    ferry_counters* out,
                    std::int64_t* wait_ns_by_peer,
                    std::size_t num_peers);

}  // namespace ferry::capi
