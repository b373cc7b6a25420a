#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace ferry::capi;

ferry_status ferry_pending_route_finish(ferry_pending_route* pending, ferry_route** out_route) {
  return guard_new(__func__, {FERRY_REQUIRED(pending), FERRY_REQUIRED(out_route)}, out_route,
                   [&] { return new ferry_route{pending->pending.finish()}; });
}

void ferry_pending_route_free(ferry_pending_route* pending) { delete pending; }

ferry_status ferry_pending_delivery_finish(ferry_pending_delivery* pending,
                                           ferry_delivery** out_delivery) {
  return guard_new(__func__, {FERRY_REQUIRED(pending), FERRY_REQUIRED(out_delivery)}, out_delivery,
                   [&] { return new ferry_delivery{pending->pending.finish()}; });
}

void ferry_pending_delivery_free(ferry_pending_delivery* pending) { delete pending; }

ferry_status ferry_pending_combine_finish(ferry_pending_combine* pending) {
  return guard(__func__, {FERRY_REQUIRED(pending)}, [&] { pending->pending.finish(); });
}

void ferry_pending_combine_free(ferry_pending_combine* pending) { delete pending; }
