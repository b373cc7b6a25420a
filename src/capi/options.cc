#include "capi/options.hpp"

#include "capi/enums.hpp"
#include "capi/field.hpp"
#include "capi/sized_struct.hpp"
#include "capi/tensor.hpp"

namespace ferry::capi {

RouteOptions to_options(const ferry_route_options* options) {
  constexpr const char* kName = "ferry_route_options";
  const ferry_route_options given = read_sized(kName, options);
  check_reserved(kName, given.reserved);
  RouteOptions to;
  const bool has_layout = to_bool(kName, "has_layout", given.has_layout);
  const Layout layout = to_enum<Layout>(kName, "layout", given.layout);
  // A layout without has_layout is a forgotten flag, not a wish for the exchange's layout.
  FERRY_CHECK(has_layout || given.layout == 0, ErrorCode::kInvalidArgument,
              "{}.layout is {} while has_layout is 0, expected has_layout 1", kName, given.layout);
  if (has_layout) to.layout = layout;
  to.sizing = to_enum<Sizing>(kName, "sizing", given.sizing);
  to.timeout = to_timeout(kName, "timeout_ms", given.timeout_ms);
  return to;
}

DeliveryOutputs to_outputs(const ferry_delivery_outputs* outputs) {
  const ferry_delivery_outputs given = read_sized("ferry_delivery_outputs", outputs);
  DeliveryOutputs to;
  to.tokens = to_view("outputs.tokens", given.tokens);
  to.scales = to_view("outputs.scales", given.scales);
  to.topk_idx = to_view("outputs.topk_idx", given.topk_idx);
  to.topk_weights = to_view("outputs.topk_weights", given.topk_weights);
  return to;
}

DispatchOptions to_options(const ferry_dispatch_options* options) {
  constexpr const char* kName = "ferry_dispatch_options";
  const ferry_dispatch_options given = read_sized(kName, options);
  DispatchOptions to;
  to.topk_weights = to_view("topk_weights", given.topk_weights);
  to.scales = to_view("scales", given.scales);
  to.quantize = to_enum<Quantize>(kName, "quantize", given.quantize);
  to.scale_layout = to_enum<ScaleLayout>(kName, "scale_layout", given.scale_layout);
  to.gaps = to_enum<Gaps>(kName, "gaps", given.gaps);
  to.scale_by_weights = to_bool(kName, "scale_by_weights", given.scale_by_weights);
  to.outputs = to_outputs(given.outputs);
  to.timeout = to_timeout(kName, "timeout_ms", given.timeout_ms);
  return to;
}

CombineOptions to_options(const ferry_combine_options* options) {
  constexpr const char* kName = "ferry_combine_options";
  const ferry_combine_options given = read_sized(kName, options);
  check_reserved(kName, given.reserved);
  CombineOptions to;
  to.topk_weights = to_view("topk_weights", given.topk_weights);
  to.bias = to_view("bias", given.bias);
  to.second_bias = to_view("second_bias", given.second_bias);
  to.row_weights = to_view("row_weights", given.row_weights);
  to.combined_weights = to_view("combined_weights", given.combined_weights);
  to.form = to_enum<CombineForm>(kName, "form", given.form);
  to.timeout = to_timeout(kName, "timeout_ms", given.timeout_ms);
  return to;
}

}  // namespace ferry::capi
