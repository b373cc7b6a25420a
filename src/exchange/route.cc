#include "exchange/exchange_impl.hpp"

namespace ferry {

std::int64_t Route::num_tokens() const { return impl_->require_owner(), impl_->state->num_tokens; }
Layout Route::layout() const { return impl_->require_owner(), impl_->state->shape.layout; }
Sizing Route::sizing() const { return impl_->require_owner(), impl_->state->sizing; }

std::int64_t Route::num_recv_rows() const {
  impl_->require_exact("num_recv_rows");
  return impl_->state->receive.num_rows;
}

const std::vector<std::int64_t>& Route::expert_counts() const {
  impl_->require_exact("expert_counts");
  return impl_->state->receive.expert_counts;
}

const std::vector<std::int64_t>& Route::aligned_expert_counts() const {
  impl_->require_exact("aligned_expert_counts");
  return impl_->state->receive.aligned_expert_counts;
}

const std::vector<std::int64_t>& Route::tokens_from_rank() const {
  impl_->require_exact("tokens_from_rank");
  return impl_->state->receive.tokens_from_rank;
}

Counters Route::counters() const { return impl_->require_owner(), impl_->state->counters; }

}  // namespace ferry
