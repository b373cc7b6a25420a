#include "exchange/arguments.hpp"

#include <fmt/format.h>

#include <string>

#include "base/error.hpp"

namespace ferry::detail {

namespace {

std::string describe(const TensorView& view) {
  std::string shape;
  for (int dim = 0; dim < view.num_dims; ++dim)
    shape += fmt::format("{}{}", dim > 0 ? ", " : "", view.shape[dim]);
  return fmt::format("[{}] {}", shape, dtype_name(view.dtype));
}

std::string device_name(Device device) {
  return device.kind == DeviceKind::kCpu ? "the CPU" : fmt::format("cuda:{}", device.index);
}

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.data); }

std::int64_t element_bytes(const TensorView& view) {
  return static_cast<std::int64_t>(dtype_bytes(view.dtype));
}

// The checks that every tensor of a call passes, named for messages.
class TensorCheck {
 public:
  TensorCheck(const ArgumentContext& context, const char* name, const TensorView& view)
      : rank_(context.rank), name_(name), view_(view) {
    FERRY_CHECK(view.is_given(), ErrorCode::kInvalidArgument, "rank {}: {} is not given", rank_,
                name_);
    const Device expected = context.config.device;
    require(view.device == expected, fmt::format("lies on {}, expected {}",
                                                 device_name(view.device), device_name(expected)));
    for (int dim = 0; dim < view.num_dims; ++dim)
      require(view.shape[dim] >= 0, "has a negative extent");
    require(view.data != nullptr || view.num_elements() == 0, "has a null pointer");
  }

  void has_dtype(std::initializer_list<DType> allowed) const {
    std::string names;
    for (const DType dtype : allowed) {
      if (view_.dtype == dtype) return;
      names += fmt::format("{}{}", names.empty() ? "" : " or ", dtype_name(dtype));
    }
    require(false, fmt::format("expected {}", names));
  }

  void has_dims(int num_dims) const {
    require(view_.num_dims == num_dims, fmt::format("expected {} dimensions", num_dims));
  }

  // -1 stands for any extent.
  void has_shape(std::initializer_list<std::int64_t> expected) const {
    std::string text;
    bool fits = static_cast<int>(expected.size()) == view_.num_dims;
    int dim = 0;
    for (const std::int64_t extent : expected) {
      text += fmt::format("{}{}", dim > 0 ? ", " : "", extent < 0 ? "any" : std::to_string(extent));
      if (dim < view_.num_dims && extent >= 0 && view_.shape[dim] != extent) fits = false;
      ++dim;
    }
    require(fits, fmt::format("expected [{}]", text));
  }

  // At least `rows` rows, the rest as given.
  void has_rows(std::int64_t rows, std::initializer_list<std::int64_t> rest) const {
    require(view_.num_dims == static_cast<int>(rest.size()) + 1 && view_.shape[0] >= rows,
            fmt::format("expected at least {} rows", rows));
    int dim = 1;
    for (const std::int64_t extent : rest) {
      require(view_.shape[dim] == extent, fmt::format("expected {} in dimension {}", extent, dim));
      ++dim;
    }
  }

  void has_dense_rows() const {
    const int last = view_.num_dims - 1;
    require(view_.num_elements() == 0 || view_.shape[last] <= 1 || view_.strides[last] == 1,
            fmt::format("has rows with a stride of {} elements, expected dense rows",
                        view_.strides[last]));
    // [A, B, H] is walked as A*B rows with one pitch.
    if (view_.num_dims == 3 && view_.num_elements() != 0 && view_.shape[0] > 1)
      require(view_.strides[0] == view_.shape[1] * view_.strides[1],
              "has a gap between its first two dimensions, expected one row pitch");
  }

  void is_dense() const { require(view_.is_dense(), "is not dense"); }

  void require(bool condition, const std::string& expected) const {
    FERRY_CHECK(condition, ErrorCode::kInvalidArgument, "rank {}: {} is {}, {}", rank_, name_,
                describe(view_), expected);
  }

 private:
  int rank_;
  const char* name_;
  const TensorView& view_;
};

// Bytes between rows of the last-but-one dimension.
std::int64_t row_pitch(const TensorView& view) {
  if (view.num_dims < 2) return element_bytes(view);
  return view.strides[view.num_dims - 2] * element_bytes(view);
}

bool is_one_row_per_expert(Layout layout) { return layout != Layout::kByRank; }

// The shape of delivered rows with `width` behind it: [n, width], or [E_l, R*max_tokens, width].
void check_row_tensor(const ArgumentContext& context,
                      const engine::RouteState& route,
                      const TensorCheck& check,
                      std::initializer_list<std::int64_t> width) {
  if (route.shape.layout == Layout::kPadded) {
    const auto& owners = *route.owners;
    const std::int64_t per_expert = owners.num_ranks() * context.config.max_tokens;
    const std::int64_t num_local = owners.num_local(context.rank);
    if (width.size() == 0)
      check.has_shape({num_local, per_expert});
    else
      check.has_shape({num_local, per_expert, *width.begin()});
    return;
  }
  check.has_rows(route.num_output_rows(), width);
}

void read_scales(const ArgumentContext& context,
                 const engine::RouteState& route,
                 const DispatchOptions& options,
                 engine::DispatchOperation& dispatch) {
  dispatch.quantize = options.quantize;
  dispatch.scale_layout = options.scale_layout;
  if (options.quantize != Quantize::kNone) {
    FERRY_CHECK(!options.scales.is_given(), ErrorCode::kInvalidArgument,
                "rank {}: scales are given and quantize makes its own; try: one of the two",
                context.rank);
    dispatch.num_scales = engine::num_scales(options.quantize, dispatch.hidden);
    dispatch.scale_dtype = options.quantize == Quantize::kFp8 ? DType::kFp32 : DType::kInt32;
    return;
  }
  if (!options.scales.is_given()) return;
  const TensorView& scales = options.scales;
  const TensorCheck check(context, "scales", scales);
  check.has_dims(2);
  check.has_shape({route.num_tokens, -1});
  check.require(element_bytes(scales) <= 4, "expected elements of 1, 2 or 4 bytes");
  dispatch.num_scales = scales.shape[1];
  dispatch.scale_dtype = scales.dtype;
  check.require(dispatch.scale_bytes() <= context.plan.max_scale_bytes,
                fmt::format("that is {} bytes per row, scale_bytes_per_row allows {}",
                            dispatch.scale_bytes(), context.plan.max_scale_bytes));
  dispatch.scales = bytes_of(scales);
  dispatch.scale_pitch = scales.strides[0] * element_bytes(scales);
  dispatch.scale_stride = (scales.shape[1] > 1 ? scales.strides[1] : 1) * element_bytes(scales);
}

void read_outputs(const ArgumentContext& context,
                  const engine::RouteState& route,
                  const DeliveryOutputs& outputs,
                  engine::DispatchOperation& dispatch) {
  const std::int64_t num_rows = route.num_output_rows();
  if (outputs.tokens.is_given()) {
    const TensorCheck check(context, "outputs.tokens", outputs.tokens);
    check.has_dtype({dispatch.row_dtype});
    check_row_tensor(context, route, check, {dispatch.hidden});
    check.is_dense();
    dispatch.direct_offset =
        context.engine.arena_offset(outputs.tokens.data, num_rows * dispatch.row_bytes);
    if (!dispatch.direct_offset) dispatch.staged_out = bytes_of(outputs.tokens);
  }
  if (outputs.scales.is_given()) {
    const TensorCheck check(context, "outputs.scales", outputs.scales);
    check.require(dispatch.num_scales > 0, "no scales are dispatched");
    check.require(dispatch.scale_layout == ScaleLayout::kRowMajor,
                  "column-major scales are delivered in the exchange's memory only");
    check.has_dtype({dispatch.scale_dtype});
    check_row_tensor(context, route, check, {dispatch.num_scales});
    check.is_dense();
    dispatch.scales_out = bytes_of(outputs.scales);
  }
  if (outputs.topk_idx.is_given()) {
    const TensorCheck check(context, "outputs.topk_idx", outputs.topk_idx);
    check.require(route.shape.layout == Layout::kByRank, "only by_rank delivers topk_idx");
    check.has_dtype({route.is_topk_int64 ? DType::kInt64 : DType::kInt32});
    check.has_rows(num_rows, {context.config.top_k});
    check.is_dense();
    dispatch.topk_out = bytes_of(outputs.topk_idx);
  }
  if (outputs.topk_weights.is_given()) {
    const TensorCheck check(context, "outputs.topk_weights", outputs.topk_weights);
    check.require(dispatch.has_weights, "no topk_weights are dispatched");
    check.has_dtype({DType::kFp32});
    if (route.shape.layout == Layout::kByRank)
      check.has_rows(num_rows, {context.config.top_k});
    else
      check_row_tensor(context, route, check, {});
    check.is_dense();
    dispatch.weights_out = bytes_of(outputs.topk_weights);
  }
}

}  // namespace

plan::TopkView read_topk_argument(const ArgumentContext& context, const TensorView& topk_idx) {
  const TensorCheck check(context, "topk_idx", topk_idx);
  check.has_dtype({DType::kInt32, DType::kInt64});
  check.has_shape({-1, context.config.top_k});
  check.has_dense_rows();
  const std::int64_t num_tokens = topk_idx.shape[0];
  FERRY_CHECK(num_tokens <= context.config.max_tokens, ErrorCode::kInvalidArgument,
              "rank {}: topk_idx has {} tokens, max_tokens is {}", context.rank, num_tokens,
              context.config.max_tokens);
  return {topk_idx.data, topk_idx.dtype == DType::kInt64, num_tokens, context.config.top_k,
          topk_idx.strides[0]};
}

void read_dispatch_arguments(const ArgumentContext& context,
                             const engine::RouteState& route,
                             const TensorView& x,
                             const DispatchOptions& options,
                             engine::DispatchOperation& dispatch) {
  const TensorCheck check(context, "x", x);
  check.has_dims(2);
  check.has_shape({route.num_tokens, -1});
  check.require(element_bytes(x) <= 4, "expected elements of 1, 2 or 4 bytes");
  check.has_dense_rows();
  dispatch.x = bytes_of(x);
  dispatch.x_pitch = row_pitch(x);
  dispatch.x_dtype = x.dtype;
  dispatch.row_dtype = x.dtype;
  dispatch.hidden = x.shape[1];
  if (options.quantize != Quantize::kNone) {
    check.has_dtype({DType::kBf16});
    dispatch.row_dtype = DType::kFp8E4m3;
  }
  dispatch.row_bytes = dispatch.hidden * static_cast<std::int64_t>(dtype_bytes(dispatch.row_dtype));
  check.require(dispatch.row_bytes > 0 && dispatch.row_bytes % 16 == 0,
                fmt::format("that is {} bytes per delivered row, expected a multiple of 16",
                            dispatch.row_bytes));
  check.require(dispatch.row_bytes <= context.plan.max_row_bytes,
                fmt::format("that is {} bytes per row, the exchange is made for {}",
                            dispatch.row_bytes, context.plan.max_row_bytes));
  dispatch.gaps = options.gaps;
  read_scales(context, route, options, dispatch);

  dispatch.has_weights = options.topk_weights.is_given();
  if (dispatch.has_weights) {
    const TensorCheck weights(context, "topk_weights", options.topk_weights);
    weights.has_dtype({DType::kFp32});
    weights.has_shape({route.num_tokens, context.config.top_k});
    weights.has_dense_rows();
    dispatch.weights = bytes_of(options.topk_weights);
    dispatch.weights_pitch = row_pitch(options.topk_weights);
  }
  if (options.scale_by_weights) {
    FERRY_CHECK(dispatch.has_weights, ErrorCode::kInvalidArgument,
                "rank {}: scale_by_weights needs topk_weights, which are absent", context.rank);
    FERRY_CHECK(
        is_one_row_per_expert(route.shape.layout), ErrorCode::kInvalidArgument,
        "rank {}: scale_by_weights needs one row per expert, by_rank has one per rank; try: "
        "layout by_expert or padded",
        context.rank);
    check.has_dtype({DType::kBf16, DType::kFp16, DType::kFp32});
    FERRY_CHECK(options.quantize == Quantize::kNone, ErrorCode::kInvalidArgument,
                "rank {}: scale_by_weights and quantize exclude each other", context.rank);
    dispatch.is_scaled_by_weights = true;
  }
  read_outputs(context, route, options.outputs, dispatch);
}

void read_weight_arguments(const ArgumentContext& context,
                           const engine::RouteState& route,
                           const TensorView& row_weights,
                           const TensorView& combined_weights,
                           engine::CombineOperation& combine) {
  const TensorCheck rows(context, "row_weights", row_weights);
  rows.has_dtype({DType::kFp32});
  if (route.shape.layout == Layout::kByRank)
    rows.has_rows(route.num_output_rows(), {context.config.top_k});
  else
    check_row_tensor(context, route, rows, {});
  rows.is_dense();
  const TensorCheck combined(context, "combined_weights", combined_weights);
  combined.has_dtype({DType::kFp32});
  combined.has_shape({route.num_tokens, context.config.top_k});
  combined.is_dense();
  combine.has_row_weights = true;
  combine.row_weights = static_cast<const float*>(row_weights.data);
  combine.combined_weights = static_cast<float*>(combined_weights.data);
}

void read_combine_arguments(const ArgumentContext& context,
                            const engine::RouteState& route,
                            const TensorView& y,
                            const TensorView& out,
                            const CombineOptions& options,
                            engine::CombineOperation& combine) {
  const TensorCheck rows(context, "y", y);
  rows.has_dtype({DType::kBf16, DType::kFp16, DType::kFp32});
  combine.dtype = y.dtype;
  combine.hidden = y.shape[y.num_dims - 1];
  check_row_tensor(context, route, rows, {combine.hidden});
  rows.has_dense_rows();
  combine.row_bytes = combine.hidden * element_bytes(y);
  rows.require(
      combine.row_bytes > 0 && combine.row_bytes % 16 == 0,
      fmt::format("that is {} bytes per row, expected a multiple of 16", combine.row_bytes));
  rows.require(combine.hidden <= context.config.hidden,
               fmt::format("the exchange is made for hidden {}", context.config.hidden));
  combine.y = bytes_of(y);
  combine.y_pitch = row_pitch(y);
  const std::int64_t num_rows = route.num_output_rows();
  combine.y_offset = num_rows == 0
                         ? std::optional<std::int64_t>(0)
                         : context.engine.arena_offset(
                               y.data, (num_rows - 1) * combine.y_pitch + combine.row_bytes);

  const TensorCheck sums(context, "out", out);
  sums.has_dtype({y.dtype});
  sums.has_shape({route.num_tokens, combine.hidden});
  sums.has_dense_rows();
  combine.out = bytes_of(out);
  combine.out_pitch = row_pitch(out);

  if (options.topk_weights.is_given()) {
    FERRY_CHECK(
        is_one_row_per_expert(route.shape.layout), ErrorCode::kInvalidArgument,
        "rank {}: a weighted combine needs one row per expert, by_rank has one per rank; try: "
        "layout by_expert or padded, or weigh the rows before an unweighted combine",
        context.rank);
    const TensorCheck weights(context, "topk_weights", options.topk_weights);
    weights.has_dtype({DType::kFp32});
    weights.has_shape({route.num_tokens, context.config.top_k});
    weights.has_dense_rows();
    combine.topk_weights = bytes_of(options.topk_weights);
    combine.topk_weights_pitch = row_pitch(options.topk_weights);
  }
  const auto read_bias = [&](const char* name, const TensorView& bias, const std::byte*& data,
                             std::int64_t& pitch) {
    if (!bias.is_given()) return;
    const TensorCheck check(context, name, bias);
    check.has_dtype({y.dtype});
    check.has_shape({route.num_tokens, combine.hidden});
    check.has_dense_rows();
    data = bytes_of(bias);
    pitch = row_pitch(bias);
  };
  read_bias("bias", options.bias, combine.bias, combine.bias_pitch);
  read_bias("second_bias", options.second_bias, combine.second_bias, combine.second_bias_pitch);
  if (options.row_weights.is_given() || options.combined_weights.is_given())
    read_weight_arguments(context, route, options.row_weights, options.combined_weights, combine);
}

}  // namespace ferry::detail
