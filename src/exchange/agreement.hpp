#pragma once

#include <chrono>

#include "boot/store.hpp"
#include "ferry/exchange.hpp"

namespace ferry::detail {

// Collective. Compares every field that must be the same on all ranks; throws kInvalidArgument on
// every rank, naming the field, the ranks and the values.
void check_same_config(boot::Store& store,
                       const ExchangeConfig& config,
                       std::chrono::milliseconds timeout);

}  // namespace ferry::detail
