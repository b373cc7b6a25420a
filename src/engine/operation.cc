#include "engine/operation.hpp"

#include <algorithm>
#include <cstring>

namespace ferry::engine {

std::int64_t num_scales(Quantize quantize, std::int64_t hidden) noexcept {
  switch (quantize) {
    case Quantize::kNone: return 0;
    case Quantize::kFp8: return (hidden + kQuantizeGroup - 1) / kQuantizeGroup;
    case Quantize::kFp8Ue8m0: return (hidden + 4 * kQuantizeGroup - 1) / (4 * kQuantizeGroup);
  }
  return 0;
}

void set_error(layout::OperationWords& words, const std::optional<Error>& error) {
  if (!error) return;
  words.error_code = static_cast<std::int32_t>(error->code());
  const std::size_t length =
      std::min<std::size_t>(std::strlen(error->what()), layout::OperationWords::kTextBytes - 1);
  std::memcpy(words.error_text, error->what(), length);
  words.error_text[length] = '\0';
}

std::string first_difference(const layout::OperationShape& a, const layout::OperationShape& b) {
  const auto differ = [](const char* name, auto x, auto y) {
    return x == y ? std::string() : fmt::format("{} {} against {}", name, x, y);
  };
  for (const std::string& text : {
           differ("route", a.route, b.route),
           differ("layout", a.layout, b.layout),
           differ("row bytes", a.row_bytes, b.row_bytes),
           differ("dtype", dtype_name(DType{a.dtype}), dtype_name(DType{b.dtype})),
           differ("quantize", a.quantize, b.quantize),
           differ("scale bytes per row", a.scale_bytes, b.scale_bytes),
           differ("scale dtype", a.scale_dtype, b.scale_dtype),
           differ("weights given", a.has_weights, b.has_weights),
           differ("bytes of a topk_idx element", a.topk_idx_bytes, b.topk_idx_bytes),
           differ("combine form", a.form, b.form),
           differ("owner map digest", a.digest, b.digest),
       })
    if (!text.empty()) return text;
  return {};
}

layout::OperationShape shape_of(const DispatchOperation& dispatch) {
  layout::OperationShape shape;
  shape.operation = static_cast<std::int32_t>(layout::Operation::kDispatch);
  shape.layout = static_cast<std::int32_t>(dispatch.route->shape.layout);
  shape.dtype = static_cast<std::int32_t>(dispatch.row_dtype);
  shape.scale_dtype = static_cast<std::int32_t>(dispatch.scale_dtype);
  shape.quantize = static_cast<std::int32_t>(dispatch.quantize);
  shape.has_weights = dispatch.has_weights ? 1 : 0;
  shape.route = dispatch.route->sequence;
  shape.row_bytes = dispatch.row_bytes;
  shape.scale_bytes = dispatch.scale_bytes();
  return shape;
}

layout::OperationShape shape_of(const CombineOperation& combine) {
  layout::OperationShape shape;
  shape.operation = static_cast<std::int32_t>(combine.kind);
  shape.layout = static_cast<std::int32_t>(combine.route->shape.layout);
  shape.dtype = static_cast<std::int32_t>(combine.dtype);
  shape.has_weights = combine.has_row_weights ? 1 : 0;
  shape.form = static_cast<std::int32_t>(combine.form);
  shape.route = combine.route->sequence;
  shape.row_bytes = combine.row_bytes;
  return shape;
}

std::vector<std::int64_t> cap_num_rows(std::span<const plan::SourceCounts> counts,
                                       const RouteState& route) {
  plan::RouteShape uncapped = route.shape;
  uncapped.row_cap = INT64_MAX;
  std::vector<std::int64_t> num_rows = plan::plan_num_rows(counts, *route.owners, uncapped);
  if (route.shape.layout == Layout::kPadded) return num_rows;
  for (std::size_t destination = 0; destination < num_rows.size(); ++destination) {
    std::int64_t& rows = num_rows[destination];
    if (rows <= route.shape.row_cap) continue;
    FERRY_CHECK(
        !route.is_overflow_error, ErrorCode::kNoResource,
        "rank {} would receive {} rows, max_recv_rows is {}; try: a larger max_recv_rows, or "
        "overflow = drop",
        destination, rows, route.shape.row_cap);
    rows = route.shape.row_cap;
  }
  return num_rows;
}

}  // namespace ferry::engine
