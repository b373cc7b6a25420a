#pragma once

#include "engine/engine.hpp"
#include "exchange/exchange_plan.hpp"
#include "ferry/exchange.hpp"

namespace ferry::detail {

// Checks of call arguments against a configuration. Each throws kInvalidArgument naming the tensor,
// got and expected, prefixed by the rank; the caller sends that error to all ranks. Each fills the
// operation's fields that belong to the tensors.

struct ArgumentContext {
  const ExchangeConfig& config;
  const ExchangePlan& plan;
  const engine::Engine& engine;
  int rank;
};

// The view of the ids.
[[nodiscard]] plan::TopkView read_topk_argument(const ArgumentContext& context,
                                                const TensorView& topk_idx);

// What the header of a dispatch says, and whether the tensors fit the route.
void read_dispatch_arguments(const ArgumentContext& context,
                             const engine::RouteState& route,
                             const TensorView& x,
                             const DispatchOptions& options,
                             engine::DispatchOperation& dispatch);

void read_combine_arguments(const ArgumentContext& context,
                            const engine::RouteState& route,
                            const TensorView& y,
                            const TensorView& out,
                            const CombineOptions& options,
                            engine::CombineOperation& combine);

// row_weights and combined_weights alone.
void read_weight_arguments(const ArgumentContext& context,
                           const engine::RouteState& route,
                           const TensorView& row_weights,
                           const TensorView& combined_weights,
                           engine::CombineOperation& combine);

}  // namespace ferry::detail
