#include <algorithm>

#include "exchange/exchange_impl.hpp"

namespace ferry {

namespace detail {

namespace {

std::int64_t align_rows(std::int64_t rows) { return (rows + 3) / 4 * 4; }

}  // namespace

// The views of what the engine has put into the slot.
void ExchangeImpl::fill_views(PendingImpl& pending) {
  const engine::DispatchOperation& dispatch = *pending.dispatch;
  const engine::RouteState& route = *dispatch.route;
  const layout::DeliverySlot& parts = plan_.arena.delivery;
  DeliveryImpl& out = *pending.delivery;
  const auto part = [&](std::int64_t offset) {
    return engine_->arena_base() + plan_.arena.deliveries[dispatch.slot] + offset;
  };
  const bool is_padded = route.shape.layout == Layout::kPadded;
  const bool is_by_rank = route.shape.layout == Layout::kByRank;
  const std::int64_t num_local = route.num_local_experts(group_->rank());
  const std::int64_t per_expert = group_->size() * config_.max_tokens;
  const std::int64_t num_rows = route.num_output_rows();
  const auto dense = [&](const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
    return TensorView::dense(data, dtype, shape, config_.device);
  };
  const auto rows_view = [&](const void* data, DType dtype, std::int64_t width) {
    return is_padded ? dense(data, dtype, {num_local, per_expert, width})
                     : dense(data, dtype, {num_rows, width});
  };
  const auto row_view = [&](const void* data, DType dtype) {
    return is_padded ? dense(data, dtype, {num_local, per_expert}) : dense(data, dtype, {num_rows});
  };

  out.tokens =
      rows_view(pending.outputs.tokens.is_given() ? pending.outputs.tokens.data : part(parts.rows),
                dispatch.row_dtype, dispatch.hidden);
  if (dispatch.num_scales > 0) {
    const bool is_callers = pending.outputs.scales.is_given();
    out.scales = rows_view(is_callers ? pending.outputs.scales.data : part(parts.scales),
                           dispatch.scale_dtype, dispatch.num_scales);
    if (dispatch.scale_layout == ScaleLayout::kColumnMajor) {
      const std::int64_t pitch = align_rows(is_padded ? per_expert : num_rows);
      const int last = out.scales.num_dims - 1;
      if (is_padded) out.scales.strides[0] = pitch * dispatch.num_scales;
      out.scales.strides[last - 1] = 1;
      out.scales.strides[last] = pitch;
    }
  }
  if (is_by_rank)
    out.topk_idx = dense(
        pending.outputs.topk_idx.is_given() ? pending.outputs.topk_idx.data : part(parts.topk_idx),
        route.is_topk_int64 ? DType::kInt64 : DType::kInt32, {num_rows, config_.top_k});
  else
    out.row_expert = row_view(part(parts.row_expert), DType::kInt32);
  if (dispatch.has_weights) {
    const void* data = pending.outputs.topk_weights.is_given() ? pending.outputs.topk_weights.data
                                                               : part(parts.weights);
    out.topk_weights = is_by_rank ? dense(data, DType::kFp32, {num_rows, config_.top_k})
                                  : row_view(data, DType::kFp32);
  }
  out.row_source = rows_view(part(parts.row_source), DType::kInt32, 2);

  const auto* counts = reinterpret_cast<const std::int64_t*>(part(parts.counts));
  out.num_rows = dense(counts, DType::kInt64, {1});
  out.expert_counts = dense(counts + 1, DType::kInt64, {num_local});
  out.aligned_expert_counts = dense(counts + 1 + num_local, DType::kInt64, {num_local});
  out.expert_offsets = dense(counts + 1 + 2 * num_local, DType::kInt64, {num_local + 1});
  if (is_by_rank)
    out.source_offsets = dense(counts + 2 + 3 * num_local, DType::kInt64, {group_->size() + 1});
}

}  // namespace detail

TensorView Delivery::tokens() const { return impl_->check(), impl_->tokens; }
TensorView Delivery::scales() const { return impl_->check(), impl_->scales; }
TensorView Delivery::topk_idx() const { return impl_->check(), impl_->topk_idx; }
TensorView Delivery::topk_weights() const { return impl_->check(), impl_->topk_weights; }
TensorView Delivery::row_source() const { return impl_->check(), impl_->row_source; }
TensorView Delivery::row_expert() const { return impl_->check(), impl_->row_expert; }
TensorView Delivery::num_rows() const { return impl_->check(), impl_->num_rows; }
TensorView Delivery::expert_counts() const { return impl_->check(), impl_->expert_counts; }
TensorView Delivery::aligned_expert_counts() const {
  return impl_->check(), impl_->aligned_expert_counts;
}
TensorView Delivery::expert_offsets() const { return impl_->check(), impl_->expert_offsets; }
TensorView Delivery::source_offsets() const { return impl_->check(), impl_->source_offsets; }

}  // namespace ferry
