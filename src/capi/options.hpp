#pragma once

#include "ferry/exchange.hpp"
#include "ferry/ferry.h"

namespace ferry::capi {

// NULL is the default. Throw kInvalidArgument for what the C++ struct cannot hold.
[[nodiscard]] RouteOptions to_options(const ferry_route_options* options);
[[nodiscard]] DispatchOptions to_options(const ferry_dispatch_options* options);
[[nodiscard]] CombineOptions to_options(const ferry_combine_options* options);
[[nodiscard]] DeliveryOutputs to_outputs(const ferry_delivery_outputs* outputs);

}  // namespace ferry::capi
