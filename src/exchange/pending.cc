#include "exchange/exchange_impl.hpp"

namespace ferry {

namespace {

// Completes the operation and lets go of it; the caller's handle is empty afterwards.
std::shared_ptr<detail::PendingImpl> complete(std::shared_ptr<detail::PendingImpl>& held) {
  FERRY_CHECK(held != nullptr, ErrorCode::kInvalidArgument,
              "finish() of an operation that is empty or finished already");
  const std::shared_ptr<detail::PendingImpl> pending = std::move(held);
  held = nullptr;
  const auto exchange = pending->exchange.lock();
  FERRY_CHECK(exchange != nullptr, ErrorCode::kInvalidArgument,
              "finish() of an operation whose exchange was destroyed");
  exchange->finish(*pending);
  return pending;
}

}  // namespace

template <>
Route Pending<Route>::finish() {
  return Route(complete(impl_)->route);
}

template <>
Delivery Pending<Delivery>::finish() {
  return Delivery(complete(impl_)->delivery);
}

template <>
void Pending<void>::finish() {
  (void)complete(impl_);
}

}  // namespace ferry
