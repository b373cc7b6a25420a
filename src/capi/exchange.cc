#include "ferry/exchange.hpp"

#include "capi/config.hpp"
#include "capi/counters.hpp"
#include "capi/enums.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/sized_struct.hpp"
#include "capi/tensor.hpp"

using namespace ferry::capi;
using ferry::ErrorCode;
using ferry::Exchange;
using ferry::StreamRef;
using ferry::TensorView;

namespace {

TensorView allocate_tensor(Exchange& exchange,
                           ferry::DType dtype,
                           int32_t num_dims,
                           const int64_t* shape,
                           StreamRef stream) {
  switch (num_dims) {
    case 1: return exchange.allocate(dtype, {shape[0]}, stream);
    case 2: return exchange.allocate(dtype, {shape[0], shape[1]}, stream);
    case 3: return exchange.allocate(dtype, {shape[0], shape[1], shape[2]}, stream);
    case 4: return exchange.allocate(dtype, {shape[0], shape[1], shape[2], shape[3]}, stream);
  }
  FERRY_THROW(ErrorCode::kInvalidArgument, "num_dims is {}, expected 1..{}", num_dims,
              FERRY_MAX_DIMS);
}

}  // namespace

ferry_status ferry_exchange_create(const ferry_group* group,
                                   const ferry_exchange_config* config,
                                   ferry_exchange** out_exchange) {
  return guard_new(
      __func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(config), FERRY_REQUIRED(out_exchange)},
      out_exchange, [&] { return new ferry_exchange{Exchange(group->group, to_config(config))}; });
}

ferry_status ferry_exchange_bytes_needed(const ferry_exchange_config* config,
                                         int32_t num_ranks,
                                         ferry_memory_need* out_need) {
  return guard(__func__, {FERRY_REQUIRED(config), FERRY_REQUIRED(out_need)}, [&] {
    const ferry::MemoryNeed need = Exchange::bytes_needed(to_config(config), num_ranks);
    ferry_memory_need to{};
    to.arena_virtual_bytes = need.arena_virtual_bytes;
    to.delivery_bytes = need.delivery_bytes;
    to.staging_bytes = need.staging_bytes;
    to.control_bytes = need.control_bytes;
    write_sized("ferry_memory_need", to, out_need);
  });
}

ferry_status ferry_exchange_route(ferry_exchange* exchange,
                                  const ferry_tensor* topk_idx,
                                  const ferry_route_options* options,
                                  void* stream,
                                  ferry_route** out_route) {
  return guard_new(__func__,
                   {FERRY_REQUIRED(exchange), FERRY_REQUIRED(topk_idx), FERRY_REQUIRED(out_route)},
                   out_route, [&] {
                     return new ferry_route{exchange->exchange.route(
                         to_view("topk_idx", topk_idx), to_options(options), StreamRef{stream})};
                   });
}

ferry_status ferry_exchange_begin_route(ferry_exchange* exchange,
                                        const ferry_tensor* topk_idx,
                                        const ferry_route_options* options,
                                        void* stream,
                                        ferry_pending_route** out_pending) {
  return guard_new(
      __func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(topk_idx), FERRY_REQUIRED(out_pending)},
      out_pending, [&] {
        return new ferry_pending_route{exchange->exchange.begin_route(
            to_view("topk_idx", topk_idx), to_options(options), StreamRef{stream})};
      });
}

ferry_status ferry_exchange_dispatch(ferry_exchange* exchange,
                                     const ferry_route* route,
                                     const ferry_tensor* x,
                                     const ferry_dispatch_options* options,
                                     void* stream,
                                     ferry_delivery** out_delivery) {
  return guard_new(__func__,
                   {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(x),
                    FERRY_REQUIRED(out_delivery)},
                   out_delivery, [&] {
                     return new ferry_delivery{exchange->exchange.dispatch(
                         route->route, to_view("x", x), to_options(options), StreamRef{stream})};
                   });
}

ferry_status ferry_exchange_begin_dispatch(ferry_exchange* exchange,
                                           const ferry_route* route,
                                           const ferry_tensor* x,
                                           const ferry_dispatch_options* options,
                                           void* stream,
                                           ferry_pending_delivery** out_pending) {
  return guard_new(__func__,
                   {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(x),
                    FERRY_REQUIRED(out_pending)},
                   out_pending, [&] {
                     return new ferry_pending_delivery{exchange->exchange.begin_dispatch(
                         route->route, to_view("x", x), to_options(options), StreamRef{stream})};
                   });
}

ferry_status ferry_exchange_combine(ferry_exchange* exchange,
                                    const ferry_route* route,
                                    const ferry_tensor* y,
                                    const ferry_tensor* out,
                                    const ferry_combine_options* options,
                                    void* stream) {
  return guard(
      __func__,
      {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(y), FERRY_REQUIRED(out)},
      [&] {
        exchange->exchange.combine(route->route, to_view("y", y), to_view("out", out),
                                   to_options(options), StreamRef{stream});
      });
}

ferry_status ferry_exchange_begin_combine(ferry_exchange* exchange,
                                          const ferry_route* route,
                                          const ferry_tensor* y,
                                          const ferry_tensor* out,
                                          const ferry_combine_options* options,
                                          void* stream,
                                          ferry_pending_combine** out_pending) {
  return guard_new(__func__,
                   {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(y),
                    FERRY_REQUIRED(out), FERRY_REQUIRED(out_pending)},
                   out_pending, [&] {
                     return new ferry_pending_combine{exchange->exchange.begin_combine(
                         route->route, to_view("y", y), to_view("out", out), to_options(options),
                         StreamRef{stream})};
                   });
}

ferry_status ferry_exchange_combine_weights(ferry_exchange* exchange,
                                            const ferry_route* route,
                                            const ferry_tensor* row_weights,
                                            const ferry_tensor* combined_weights,
                                            void* stream) {
  return guard(__func__,
               {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(row_weights),
                FERRY_REQUIRED(combined_weights)},
               [&] {
                 exchange->exchange.combine_weights(
                     route->route, to_view("row_weights", row_weights),
                     to_view("combined_weights", combined_weights), StreamRef{stream});
               });
}

ferry_status ferry_exchange_post(ferry_exchange* exchange,
                                 const ferry_route* route,
                                 const ferry_delivery_outputs* outputs,
                                 void* stream) {
  return guard(
      __func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(route), FERRY_REQUIRED(outputs)},
      [&] { exchange->exchange.post(route->route, to_outputs(outputs), StreamRef{stream}); });
}

ferry_status ferry_exchange_set_owner_map(ferry_exchange* exchange,
                                          const int32_t* expert_owner,
                                          size_t num_expert_owners,
                                          void* stream) {
  return guard(__func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(expert_owner)}, [&] {
    exchange->exchange.set_owner_map({expert_owner, num_expert_owners}, StreamRef{stream});
  });
}

ferry_status ferry_exchange_allocate(ferry_exchange* exchange,
                                     int64_t bytes,
                                     void* stream,
                                     void** out_pointer) {
  return guard(__func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(out_pointer)},
               [&] { *out_pointer = exchange->exchange.allocate(bytes, StreamRef{stream}); });
}

ferry_status ferry_exchange_allocate_tensor(ferry_exchange* exchange,
                                            ferry_dtype dtype,
                                            int32_t num_dims,
                                            const int64_t* shape,
                                            void* stream,
                                            ferry_tensor* out_tensor) {
  return guard(__func__,
               {FERRY_REQUIRED(exchange), FERRY_REQUIRED(shape), FERRY_REQUIRED(out_tensor)}, [&] {
                 // First: memory whose address cannot be told to the caller would be lost.
                 check_size("ferry_tensor", out_tensor, sizeof(ferry_tensor));
                 const TensorView tensor =
                     allocate_tensor(exchange->exchange, to_dtype("tensor", "dtype", dtype),
                                     num_dims, shape, StreamRef{stream});
                 write_tensor(tensor, out_tensor);
               });
}

ferry_status ferry_exchange_deallocate(ferry_exchange* exchange, void* pointer, void* stream) {
  return guard(__func__, {FERRY_REQUIRED(exchange)}, [&] {
    if (pointer != nullptr) exchange->exchange.deallocate(pointer, StreamRef{stream});
  });
}

ferry_status ferry_exchange_check(const ferry_exchange* exchange) {
  return guard(__func__, {FERRY_REQUIRED(exchange)}, [&] { exchange->exchange.check(); });
}

ferry_status ferry_exchange_counters(const ferry_exchange* exchange,
                                     ferry_counters* out_counters,
                                     int64_t* wait_ns_by_peer,
                                     size_t num_peers) {
  return guard(__func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(out_counters)}, [&] {
    write_counters(exchange->exchange.counters(), out_counters, wait_ns_by_peer, num_peers);
  });
}

ferry_status ferry_exchange_get_config(const ferry_exchange* exchange,
                                       ferry_exchange_config* out_config) {
  return guard(__func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(out_config)},
               [&] { write_config(exchange->exchange.config(), out_config); });
}

ferry_status ferry_exchange_num_local_experts(const ferry_exchange* exchange,
                                              int32_t* out_num_local_experts) {
  return guard(__func__, {FERRY_REQUIRED(exchange), FERRY_REQUIRED(out_num_local_experts)},
               [&] { *out_num_local_experts = exchange->exchange.num_local_experts(); });
}

ferry_status ferry_exchange_destroy(ferry_exchange* exchange) {
  return guard(__func__, {FERRY_REQUIRED(exchange)}, [&] { exchange->exchange.destroy(); });
}

void ferry_exchange_free(ferry_exchange* exchange) { delete exchange; }
