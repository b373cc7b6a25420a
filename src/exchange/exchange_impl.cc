#include "exchange/exchange_impl.hpp"

#include <algorithm>
#include <array>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "boot/agree.hpp"
#include "exchange/agreement.hpp"
#include "exchange/arguments.hpp"
#include "exchange/engine_choice.hpp"

namespace ferry::detail {

namespace {

// How many threads one rank of this node gets when nobody says.
int choose_num_threads(const ExchangeConfig& config, const GroupImpl& group) {
  if (config.num_threads > 0) return config.num_threads;
  if (env().num_threads > 0) return env().num_threads;
  const auto& node_of = group.nodes().node_of;
  const auto own_node = node_of[static_cast<std::size_t>(group.rank())];
  const auto here = std::count(node_of.begin(), node_of.end(), own_node);
  return std::max(1, memory::num_usable_cores() / static_cast<int>(here));
}

// The configuration says it for low latency, the environment for everything else.
std::optional<bool> choose_expand(const ExchangeConfig& config) {
  if (config.mode == Mode::kLowLatency && config.low_latency_form != LowLatencyForm::kAuto)
    return config.low_latency_form == LowLatencyForm::kExpand;
  if (!env().expand) return std::nullopt;
  return *env().expand != 0;
}

engine::Deadlines choose_deadlines(const ExchangeConfig& config, const GroupImpl& group) {
  engine::Deadlines out = group.timeouts().deadlines;
  if (config.arrival_timeout.count() > 0) out.arrival = config.arrival_timeout;
  if (config.progress_timeout.count() > 0) out.progress = config.progress_timeout;
  return out;
}

}  // namespace

std::shared_ptr<ExchangeImpl> RouteImpl::owner() const {
  auto alive = exchange.lock();
  FERRY_CHECK(alive != nullptr, ErrorCode::kInvalidArgument,
              "route {} is used after its exchange was destroyed", state->sequence);
  alive->require_alive();
  return alive;
}

void RouteImpl::require_exact(const char* what) const {
  [[maybe_unused]] const auto alive = owner();
  FERRY_CHECK(
      state->sizing == Sizing::kExact, ErrorCode::kInvalidArgument,
      "{} of route {}: the host learns counts in exact sizing only, this route has worst-case "
      "sizing; try: the delivery's tensors",
      what, state->sequence);
}

void DeliveryImpl::check() const {
  const auto alive = exchange.lock();
  FERRY_CHECK(alive != nullptr, ErrorCode::kInvalidArgument,
              "a delivery is used after its exchange was destroyed");
  alive->require_alive();
  FERRY_CHECK(alive->generation_of(slot) == generation, ErrorCode::kInvalidArgument,
              "a delivery is used after its memory was reused: slot {} is at generation {}, this "
              "delivery has {}; try: keep at most {} deliveries, or give outputs",
              slot, alive->generation_of(slot), generation, int{layout::ArenaLayout::kDeliveries});
}

ExchangeImpl::ExchangeImpl(std::shared_ptr<GroupImpl> group, const ExchangeConfig& config)
    : group_(std::move(group)), config_(config) {
  group_->check();
  // Each rank learns of the others' illegal or differing configuration before any memory is taken.
  const std::optional<Error> illegal =
      capture_error([&] { plan_ = plan_exchange(config_, group_->size()); });
  const auto timeout = group_->timeouts().meeting;
  check_same_config(group_->store(), config_, timeout);
  if (illegal) throw_error(illegal->code(), illegal->what());
  FERRY_CHECK(
      group_->nodes().num_nodes == 1, ErrorCode::kUnavailable,
      "the group's {} ranks span {} nodes and this version has no scale-out fabric; try: all "
      "ranks on one host, without --nodes",
      group_->size(), group_->nodes().num_nodes);
  owners_ = plan_.owners;

  engine::EngineConfig engine_config;
  engine_config.num_experts = config_.num_experts;
  engine_config.top_k = config_.top_k;
  engine_config.max_tokens = config_.max_tokens;
  engine_config.memory_limit = config_.memory_limit;
  engine_config.accepts_duplicates = config_.duplicates == Duplicates::kAccept;
  engine_config.mode = config_.mode;
  engine_config.is_low_latency = plan_.is_low_latency_expand;
  engine_config.row_order = config_.row_order;
  engine_config.expands = choose_expand(config_);
  engine_config.num_sms = config_.num_sms;
  engine_config.device = config_.device;
  engine_config.num_threads = choose_num_threads(config_, *group_);
  engine_config.deadlines = choose_deadlines(config_, *group_);

  // A rank that has no memory tells the others, so that creation fails everywhere with one error.
  const std::optional<Error> failure = capture_error([&] {
    engine_ = make_engine(group_->store(), group_->segments(), plan_.arena, engine_config, timeout);
  });
  boot::throw_together(group_->store(), "exchange creation: memory", failure, timeout);
}

void ExchangeImpl::require_alive() const {
  FERRY_CHECK(engine_ != nullptr, ErrorCode::kInvalidArgument,
              "an exchange is used after it was destroyed");
}

void ExchangeImpl::start_operation(std::chrono::milliseconds timeout) {
  require_alive();
  run_guarded([&] { engine_->check_alive(); });
  for (const auto& pending : std::vector(outstanding_)) {
    if (pending.use_count() > 2) continue;  // someone still holds it
    // Dropped unfinished: complete it, its result is nobody's.
    const auto error = capture_error([&] { finish(*pending); });
    if (error)
      FERRY_WARN("exchange", "an operation that was dropped unfinished failed: {}", error->what());
  }
  FERRY_CHECK(outstanding_.size() < kMostOutstanding, ErrorCode::kInvalidArgument,
              "rank {} has {} operations outstanding, at most {} may be; try: finish one first",
              group_->rank(), outstanding_.size(), kMostOutstanding);
  engine_->set_arrival_timeout(timeout);
}

template <typename Body>
void ExchangeImpl::run_guarded(const Body& body) {
  try {
    body();
  } catch (...) {
    if (group_->segments().has_fault()) engine_->retire_arena();
    throw;
  }
}

void ExchangeImpl::charge_waits(engine::RouteState& route) {
  const std::vector<std::int64_t> total = engine_->wait_ns_by_peer();
  charged_wait_ns_by_peer_.resize(total.size(), 0);
  route.counters.wait_ns_by_peer.resize(total.size(), 0);
  for (std::size_t peer = 0; peer < total.size(); ++peer) {
    const std::int64_t waited = total[peer] - charged_wait_ns_by_peer_[peer];
    route.counters.wait_ns_by_peer[peer] += waited;
    route.counters.wait_ns += waited;
    charged_wait_ns_by_peer_[peer] = total[peer];
  }
}

std::shared_ptr<RouteImpl> ExchangeImpl::own_route(const Route& route,
                                                   const char* operation) const {
  FERRY_CHECK(route.is_valid(), ErrorCode::kInvalidArgument,
              "{}: the route is empty, expected one that route() returned", operation);
  const auto owner = route.impl()->owner();
  FERRY_CHECK(owner.get() == this, ErrorCode::kInvalidArgument,
              "{}: route {} belongs to another exchange", operation, route.impl()->state->sequence);
  return route.impl();
}

std::shared_ptr<PendingImpl> ExchangeImpl::begin_route(const TensorView& topk_idx,
                                                       const RouteOptions& options,
                                                       StreamRef stream) {
  start_operation(options.timeout);
  const Layout layout = options.layout.value_or(config_.layout);
  engine::RouteArgs args;
  args.owners = owners_;
  args.sizing = options.sizing;
  args.stream = stream;
  args.is_overflow_error = config_.overflow == Overflow::kError;
  args.shape.layout = layout;
  args.shape.top_k = config_.top_k;
  args.shape.max_tokens = config_.max_tokens;
  args.shape.expert_alignment = config_.expert_alignment;
  args.shape.row_cap = plan_.row_cap;
  args.error = capture_error([&] {
    args.topk = read_topk_argument({config_, plan_, *engine_, group_->rank()}, topk_idx);
    const std::int64_t need = slot_rows(config_, *owners_, layout, plan_.row_cap);
    FERRY_CHECK(
        need <= plan_.delivery_rows, ErrorCode::kInvalidArgument,
        "a {} route needs up to {} rows, the exchange is made for {}; try: layout = {} in the "
        "exchange's configuration",
        layout_name(layout), need, plan_.delivery_rows, layout_name(layout));
    args.worst_rows =
        worst_case_output_rows(config_, *owners_, layout, plan_.row_cap, group_->rank());
  });

  auto pending = std::make_shared<PendingImpl>();
  pending->exchange = weak_from_this();
  pending->route = std::make_shared<RouteImpl>();
  pending->route->exchange = weak_from_this();
  run_guarded([&] { pending->route->state = engine_->begin_route(args); });
  charge_waits(*pending->route->state);
  outstanding_.push_back(pending);
  return pending;
}

int ExchangeImpl::take_slot() {
  // The newest released slot first, whose pages are warm and need no company; else the oldest whose
  // dispatch is finished. At most two dispatches are outstanding here, so there is one.
  int free_slot = -1;
  int oldest = -1;
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    const std::uint64_t generation = generation_of(slot);
    const bool is_pending =
        std::any_of(outstanding_.begin(), outstanding_.end(),
                    [&](const auto& p) { return p->dispatch && p->dispatch->slot == slot; });
    if (is_pending) continue;
    if (oldest < 0 || generation < generation_of(oldest)) oldest = slot;
    const bool is_free = slots_[static_cast<std::size_t>(slot)].delivery.expired();
    if (is_free && (free_slot < 0 || generation > generation_of(free_slot))) free_slot = slot;
  }
  const int chosen = free_slot >= 0 ? free_slot : oldest;
  slots_[static_cast<std::size_t>(chosen)].generation = ++num_dispatches_;
  return chosen;
}

std::shared_ptr<PendingImpl> ExchangeImpl::begin_dispatch(const Route& route,
                                                          const TensorView& x,
                                                          const DispatchOptions& options,
                                                          StreamRef stream,
                                                          bool is_split) {
  require_alive();
  auto pending = std::make_shared<PendingImpl>();
  pending->exchange = weak_from_this();
  pending->route = own_route(route, "dispatch");
  start_operation(options.timeout);
  make_room_for_dispatch();
  engine::DispatchOperation& dispatch = pending->dispatch.emplace();
  dispatch.route = pending->route->state;
  dispatch.is_split = is_split;
  dispatch.stream = stream;
  engine::RouteState& state = *dispatch.route;

  DispatchOptions merged = options;
  if (const auto posted = posted_.find(state.sequence); posted != posted_.end()) {
    if (!merged.outputs.tokens.is_given()) merged.outputs = posted->second;
    posted_.erase(posted);
  }
  pending->outputs = merged.outputs;
  dispatch.error = capture_error([&] {
    read_dispatch_arguments({config_, plan_, *engine_, group_->rank()}, state, x, merged, dispatch);
  });
  dispatch.slot = take_slot();
  engine_->poison_delivery(dispatch.slot);
  pending->delivery = std::make_shared<DeliveryImpl>();
  pending->delivery->exchange = weak_from_this();
  pending->delivery->slot = dispatch.slot;
  pending->delivery->generation = generation_of(dispatch.slot);
  slots_[static_cast<std::size_t>(dispatch.slot)].delivery = pending->delivery;
  run_guarded([&] { engine_->begin_dispatch(dispatch); });
  charge_waits(state);
  outstanding_.push_back(pending);
  return pending;
}

std::shared_ptr<PendingImpl> ExchangeImpl::begin_combine(const Route& route,
                                                         const TensorView& y,
                                                         const TensorView& out,
                                                         const CombineOptions& options,
                                                         StreamRef stream,
                                                         bool is_split) {
  require_alive();
  auto pending = std::make_shared<PendingImpl>();
  pending->exchange = weak_from_this();
  pending->route = own_route(route, "combine");
  start_operation(options.timeout);
  make_room_for_combine();
  engine::CombineOperation& combine = pending->combine.emplace();
  combine.route = pending->route->state;
  combine.is_split = is_split;
  combine.stream = stream;
  combine.form = options.form;
  combine.error = capture_error([&] {
    FERRY_CHECK(combine.route->has_row_source, ErrorCode::kInvalidArgument,
                "rank {}: combine on route {} before its first dispatch has finished",
                group_->rank(), combine.route->sequence);
    read_combine_arguments({config_, plan_, *engine_, group_->rank()}, *combine.route, y, out,
                           options, combine);
  });
  run_guarded([&] { engine_->begin_combine(combine); });
  charge_waits(*combine.route);
  outstanding_.push_back(pending);
  return pending;
}

void ExchangeImpl::combine_weights(const Route& route,
                                   const TensorView& row_weights,
                                   const TensorView& combined_weights,
                                   StreamRef stream) {
  require_alive();
  const auto own = own_route(route, "combine_weights");
  start_operation({});
  engine::CombineOperation combine;
  combine.kind = layout::Operation::kCombineWeights;
  combine.stream = stream;
  combine.route = own->state;
  combine.error = capture_error([&] {
    read_weight_arguments({config_, plan_, *engine_, group_->rank()}, *combine.route, row_weights,
                          combined_weights, combine);
  });
  run_guarded([&] {
    engine_->begin_combine(combine);
    engine_->finish_combine(combine);
  });
}

void ExchangeImpl::finish(PendingImpl& pending) {
  require_alive();
  if (pending.is_finished) return;
  pending.is_finished = true;
  std::erase_if(outstanding_, [&](const auto& other) { return other.get() == &pending; });
  if (!pending.is_completed) return complete(pending);
  if (pending.error) throw_error(pending.error->code(), pending.error->what());
}

void ExchangeImpl::complete(PendingImpl& pending) {
  run_guarded([&] {
    if (pending.dispatch) {
      engine_->finish_dispatch(*pending.dispatch);
      fill_views(pending);
    } else if (pending.combine) {
      engine_->finish_combine(*pending.combine);
    } else if (pending.route->state->sizing == Sizing::kExact) {
      engine_->finish_route(*pending.route->state);
    }
  });
  charge_waits(*pending.route->state);
}

void ExchangeImpl::complete_early(PendingImpl& pending) {
  pending.is_completed = true;
  pending.error = capture_error([&] { complete(pending); });
}

void ExchangeImpl::make_room_for_dispatch() {
  for (const auto& pending : outstanding_)
    if (engine_->must_finish_oldest_dispatch() && pending->dispatch && !pending->is_completed)
      complete_early(*pending);
}

void ExchangeImpl::make_room_for_combine() {
  for (const auto& pending : outstanding_)
    if (engine_->must_finish_oldest_combine() && pending->combine && !pending->is_completed)
      complete_early(*pending);
}

void ExchangeImpl::post(const Route& route, const DeliveryOutputs& outputs) {
  require_alive();
  posted_[own_route(route, "post")->state->sequence] = outputs;
}

void ExchangeImpl::set_owner_map(std::span<const int> expert_owner) {
  start_operation({});
  std::shared_ptr<const plan::OwnerMap> owners;
  const std::optional<Error> error = capture_error([&] {
    FERRY_CHECK(static_cast<int>(expert_owner.size()) == config_.num_experts,
                ErrorCode::kInvalidArgument, "set_owner_map names {} experts, num_experts is {}",
                expert_owner.size(), config_.num_experts);
    owners = std::make_shared<plan::OwnerMap>(plan::make_owner_map(expert_owner, group_->size()));
  });
  // FNV-1a over the owners: a map that differs between ranks is refused.
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const int owner : expert_owner)
    digest = (digest ^ static_cast<std::uint64_t>(owner)) * 0x100000001b3;
  run_guarded([&] { engine_->agree(layout::Operation::kSetOwnerMap, digest, error); });
  owners_ = std::move(owners);
  config_.expert_owner.assign(expert_owner.begin(), expert_owner.end());
}

void* ExchangeImpl::allocate(std::int64_t bytes) {
  require_alive();
  if (group_->segments().has_fault()) engine_->retire_arena();
  return engine_->allocate(bytes);
}

void ExchangeImpl::deallocate(void* pointer) {
  require_alive();
  engine_->deallocate(pointer);
}

void ExchangeImpl::check() const {
  require_alive();
  group_->check();
  engine_->report_refusals();
}

Counters ExchangeImpl::counters() const {
  require_alive();
  return engine_->counters();
}

int ExchangeImpl::num_local_experts() const { return owners_->num_local(group_->rank()); }

void ExchangeImpl::destroy() noexcept {
  outstanding_.clear();
  posted_.clear();
  engine_.reset();
}

}  // namespace ferry::detail
