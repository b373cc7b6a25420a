// Routes on the host's side: what is asked of the device, and what it answered.
#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/check.hpp"
#include "cuda/engine.hpp"
#include "plan/route_plan.hpp"

namespace ferry::cuda {

using layout::GateSlot;
using layout::Operation;
using layout::OperationShape;

namespace {

std::int64_t clamp_rows(std::int64_t rows, std::int64_t below) {
  return std::clamp<std::int64_t>(rows, 0, below);
}

// Rows that this rank does not send because they lie beyond the cap.
std::int64_t count_dropped(const std::vector<plan::SourceCounts>& counts,
                           const plan::OwnerMap& owners,
                           const plan::RouteShape& shape,
                           int rank) {
  if (shape.layout == Layout::kPadded) return 0;
  const std::vector<std::int64_t> bases = plan::plan_bases(counts, owners, shape, rank);
  const auto& own = counts[static_cast<std::size_t>(rank)];
  const auto& rows = shape.layout == Layout::kByRank ? own.per_rank : own.per_expert;
  std::int64_t dropped = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    dropped += clamp_rows(bases[i] + rows[i] - shape.row_cap, rows[i]);
  return dropped;
}

}  // namespace

RouteView Engine::make_route_view(const engine::RouteArgs& args,
                                  const RoutePool::Lease& lease) const {
  RouteView view{};
  routes_->fill(lease, view);
  view.owners = owners_;
  view.num_tokens = args.error ? 0 : args.topk.num_tokens;
  view.max_tokens = config_.max_tokens;
  view.row_cap = args.shape.row_cap;
  view.expert_alignment = args.shape.expert_alignment;
  view.layout = static_cast<int>(args.shape.layout);
  view.num_local = args.owners->num_local(rank());
  view.is_overflow_error = args.is_overflow_error ? 1 : 0;
  view.accepts_duplicates = config_.accepts_duplicates ? 1 : 0;
  view.is_by_highest_k = config_.row_order == RowOrder::kHighestKAscending ? 1 : 0;
  return view;
}

std::shared_ptr<engine::RouteState> Engine::begin_route(const engine::RouteArgs& args) {
  const cudaStream_t stream = enter(args.stream);
  if (uploaded_owners_ != args.owners) {
    upload_owners(*args.owners, stream);
    uploaded_owners_ = args.owners;
  }
  auto route = std::make_shared<DeviceRoute>();
  route->sequence = ++sequence_;
  route->shape = args.shape;
  route->sizing = args.sizing;
  route->is_topk_int64 = args.topk.is_int64;
  route->is_overflow_error = args.is_overflow_error;
  route->owners = args.owners;
  route->worst_rows = args.worst_rows;
  route->num_tokens = args.error ? 0 : args.topk.num_tokens;
  route->lease = routes_->take();
  route->view = make_route_view(args, route->lease);
  route->view.ticket = ++ticket_;

  OperationShape shape;
  shape.operation = static_cast<std::int32_t>(Operation::kRoute);
  shape.layout = static_cast<std::int32_t>(args.shape.layout);
  shape.topk_idx_bytes = args.topk.is_int64 ? 8 : 4;
  const OpenGate gate = make_gate(shape, args.error, route->sequence, stream);
  if (args.error) --num_reported_refusals_;  // a route's answer tells of it, the mailbox does not
  const TopkInput topk{args.topk.ids, args.topk.row_stride, args.topk.is_int64 ? 1 : 0};
  check(launch_route(view_, route->view, topk, gate, stream), "routing");
  close(route->sequence, Operation::kRoute, true, false, stream);
  if (args.sizing == Sizing::kWorstCase) {
    // Nobody waits for the answer: this rank's operations along the route throw its own error, the
    // others hear of it from the device.
    route->error = args.error;
    route->is_reported = args.error.has_value();
    forget_good_routes();
    unreported_routes_.push_back(route);
  }
  return route;
}

void Engine::finish_route(engine::RouteState& state) {
  auto& route = static_cast<DeviceRoute&>(state);
  // Counts arrive within microseconds of the last rank; then give the processor to others.
  for (int round = 0; !is_answered(route); ++round) {
    if (segments_.has_fault()) check_alive();
    if (round > 10000) std::this_thread::yield();
  }
  read_answer(route);
  if (route.error) {
    route.is_reported = true;
    throw_error(route.error->code(), route.error->what());
  }
  // All ranks have come this far, so all of them know of what was refused before.
  report_refusals();
}

std::optional<Error> Engine::answered_error(const DeviceRoute& route) const {
  const RouteAnswer& answer = *route.view.answer;
  // The lowest rank that found something speaks for all.
  const bool has_fault = answer.fault_rank >= 0;
  if (answer.is_refused != 0 && (!has_fault || answer.refusal.rank <= answer.fault_rank))
    return describe(answer.refusal);
  if (!has_fault) return std::nullopt;
  const std::uint64_t key = answer.topk_fault - 1;
  const plan::TopkFault fault{
      key % 2 == 1 ? plan::TopkFault::Kind::kDuplicate : plan::TopkFault::Kind::kOutOfRange,
      static_cast<std::int32_t>(key % 64 / 2), static_cast<std::int64_t>(key / 64),
      answer.topk_expert};
  return Error(ErrorCode::kInvalidArgument,
               plan::describe(fault, answer.fault_rank, config_.num_experts));
}

// The same arithmetic as on the device and on every rank, so errors are the same everywhere.
bool Engine::is_answered(const DeviceRoute& route) {
  return __atomic_load_n(&route.view.answer->ticket, __ATOMIC_ACQUIRE) == route.view.ticket;
}

void Engine::forget_good_routes() {
  std::erase_if(unreported_routes_, [&](const auto& route) {
    if (!is_answered(*route)) return false;
    read_answer(*route);
    return !route->error || route->is_reported;
  });
}

// Counts what had to wait for an answer.
void Engine::count_answered() const {
  std::vector<Uncounted> waiting;
  waiting.swap(uncounted_);
  for (Uncounted& operation : waiting) {
    if (!is_answered(*operation.route)) {
      uncounted_.push_back(std::move(operation));
      continue;
    }
    read_answer(*operation.route);
    if (operation.dispatch.route) count_dispatch(operation.dispatch);
    if (operation.combine.route) count_combine(operation.combine);
  }
}

void Engine::read_answer(DeviceRoute& route) const {
  if (route.is_planned || route.error) return;
  route.is_planned = true;
  route.error = answered_error(route);
  if (route.error) return;
  const auto* start = reinterpret_cast<const std::int32_t*>(route.view.answer + 1);
  const auto num_experts = static_cast<std::size_t>(config_.num_experts);
  const auto ranks = static_cast<std::size_t>(num_ranks());
  std::vector<plan::SourceCounts> counts;
  for (std::size_t source = 0; source < ranks; ++source) {
    const std::int32_t* row = start + source * (num_experts + ranks);
    counts.push_back({std::span(row, num_experts), std::span(row + num_experts, ranks)});
  }
  route.error = capture_error([&] {
    route.num_rows_of = engine::cap_num_rows(counts, route);
    route.receive = plan::plan_receive(counts, *route.owners, route.shape, rank());
    const std::int64_t dropped = count_dropped(counts, *route.owners, route.shape, rank());
    counters_.dropped_rows += dropped;
    route.counters.dropped_rows = dropped;
    // What this rank sends, for the byte counters: rows to every destination and those that leave.
    const auto& own = counts[static_cast<std::size_t>(rank())];
    for (std::size_t peer = 0; peer < ranks; ++peer)
      route.sent_once.count(static_cast<int>(peer), own.per_rank[peer], rank());
    for (std::size_t expert = 0; expert < num_experts; ++expert)
      route.sent.count(route.owners->rank_of[expert], own.per_expert[expert], rank());
    if (route.shape.layout == Layout::kByRank) route.sent = route.sent_once;
    for (const std::int64_t rows : route.receive.rows_from_rank) route.num_copied_rows += rows;
    for (const plan::SourceCounts& source : counts)
      route.num_copied_rows -= source.per_rank[static_cast<std::size_t>(rank())];
  });
}

}  // namespace ferry::cuda
