#include "exchange/group_impl.hpp"

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace ferry::detail {

GroupImpl::GroupImpl(std::unique_ptr<boot::Store> store,
                     int num_pretended_nodes,
                     const Timeouts& timeouts)
    : store_(std::move(store)),
      timeouts_(timeouts),
      segments_(memory::GroupSegments::open(*store_, num_pretended_nodes, timeouts.meeting)) {
  set_log_rank(rank(), size());
  store_->watch([this](int peer, boot::PeerState state) {
    // A dead peer is a fault wherever this rank stands; one that left is a fault only for those who
    // still wait for it, which they find out when they are woken.
    if (state == boot::PeerState::kDead)
      segments_.raise_fault(ErrorCode::kPeerLost,
                            fmt::format("rank {} was lost: its process ended", peer));
    else
      segments_.notify(rank());
  });
}

GroupImpl::~GroupImpl() { leave(); }

void GroupImpl::check() const {
  if (const auto fault = segments_.fault()) throw_error(fault->code(), fault->what());
}

void GroupImpl::leave() noexcept {
  try {
    store_->watch(nullptr);
  } catch (...) {  // a watcher that cannot be stopped ends with the store
  }
  store_->leave();
}

GroupImpl::Timeouts resolve_timeouts(const GroupConfig& config) {
  const auto or_default = [](std::chrono::milliseconds value, std::chrono::milliseconds fallback) {
    return value.count() > 0 ? value : fallback;
  };
  const Env& defaults = env();
  GroupImpl::Timeouts out;
  out.meeting = or_default(config.meeting_timeout, defaults.meeting_timeout);
  out.deadlines.arrival = or_default(config.arrival_timeout, defaults.arrival_timeout);
  out.deadlines.progress = or_default(config.progress_timeout, defaults.progress_timeout);
  out.deadlines.late_warning = defaults.late_warning;
  return out;
}

}  // namespace ferry::detail
