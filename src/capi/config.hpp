#pragma once

#include "ferry/exchange.hpp"
#include "ferry/ferry.h"
#include "ferry/group.hpp"

namespace ferry::capi {

// Zero fields take the defaults of the C++ struct. Throw kInvalidArgument for numbers that the C++
// struct cannot hold; the rest is judged by who uses the configuration.
[[nodiscard]] GroupConfig to_config(const ferry_group_config* config);
[[nodiscard]] ExchangeConfig to_config(const ferry_exchange_config* config);

// The arrays of the result are borrowed from `config`.
void write_config(const ExchangeConfig& config, ferry_exchange_config* out);

}  // namespace ferry::capi
