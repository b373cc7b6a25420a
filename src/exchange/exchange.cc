#include "ferry/exchange.hpp"

#include "base/checked.hpp"
#include "base/error.hpp"
#include "exchange/exchange_impl.hpp"

namespace ferry {

namespace {

detail::ExchangeImpl& require(const std::shared_ptr<detail::ExchangeImpl>& impl) {
  FERRY_CHECK(impl != nullptr, ErrorCode::kInvalidArgument,
              "an exchange is used after it was moved");
  return *impl;
}

}  // namespace

Exchange::Exchange(const Group& group, const ExchangeConfig& config)
    : impl_(std::make_shared<detail::ExchangeImpl>(group.impl(), config)) {}

Exchange::Exchange(Exchange&&) noexcept = default;

Exchange& Exchange::operator=(Exchange&& other) noexcept {
  if (this != &other) {
    destroy();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

Exchange::~Exchange() { destroy(); }

MemoryNeed Exchange::bytes_needed(const ExchangeConfig& config, int num_ranks) {
  return detail::memory_need(detail::plan_exchange(config, num_ranks));
}

Route Exchange::route(const TensorView& topk_idx, const RouteOptions& options, StreamRef stream) {
  return begin_route(topk_idx, options, stream).finish();
}

Pending<Route> Exchange::begin_route(const TensorView& topk_idx,
                                     const RouteOptions& options,
                                     StreamRef stream) {
  return Pending<Route>(require(impl_).begin_route(topk_idx, options, stream));
}

Delivery Exchange::dispatch(const Route& route,
                            const TensorView& x,
                            const DispatchOptions& options,
                            StreamRef stream) {
  return Pending<Delivery>(require(impl_).begin_dispatch(route, x, options, stream, false))
      .finish();
}

Pending<Delivery> Exchange::begin_dispatch(const Route& route,
                                           const TensorView& x,
                                           const DispatchOptions& options,
                                           StreamRef stream) {
  return Pending<Delivery>(require(impl_).begin_dispatch(route, x, options, stream, true));
}

void Exchange::combine(const Route& route,
                       const TensorView& y,
                       const TensorView& out,
                       const CombineOptions& options,
                       StreamRef stream) {
  Pending<void>(require(impl_).begin_combine(route, y, out, options, stream, false)).finish();
}

Pending<void> Exchange::begin_combine(const Route& route,
                                      const TensorView& y,
                                      const TensorView& out,
                                      const CombineOptions& options,
                                      StreamRef stream) {
  return Pending<void>(require(impl_).begin_combine(route, y, out, options, stream, true));
}

void Exchange::combine_weights(const Route& route,
                               const TensorView& row_weights,
                               const TensorView& combined_weights,
                               StreamRef stream) {
  require(impl_).combine_weights(route, row_weights, combined_weights, stream);
}

void Exchange::post(const Route& route, const DeliveryOutputs& outputs, StreamRef) {
  require(impl_).post(route, outputs);
}

void Exchange::set_owner_map(std::span<const int> expert_owner, StreamRef) {
  require(impl_).set_owner_map(expert_owner);
}

void* Exchange::allocate(std::int64_t bytes, StreamRef) { return require(impl_).allocate(bytes); }

TensorView Exchange::allocate(DType dtype,
                              std::initializer_list<std::int64_t> shape,
                              StreamRef stream) {
  TensorView view = TensorView::dense(nullptr, dtype, shape, require(impl_).config().device);
  std::int64_t bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  for (const std::int64_t extent : shape) {
    FERRY_CHECK(extent >= 0, ErrorCode::kInvalidArgument,
                "allocate: an extent is {}, expected at least 0", extent);
    bytes = checked_multiply("tensor bytes", bytes, extent);
  }
  if (bytes > 0) view.data = allocate(bytes, stream);
  return view;
}

void Exchange::deallocate(void* pointer, StreamRef) { require(impl_).deallocate(pointer); }

void Exchange::check() const { require(impl_).check(); }
Counters Exchange::counters() const { return require(impl_).counters(); }
const ExchangeConfig& Exchange::config() const { return require(impl_).config(); }
int Exchange::num_local_experts() const { return require(impl_).num_local_experts(); }

void Exchange::destroy() noexcept {
  if (impl_) impl_->destroy();
}

}  // namespace ferry
