#include <algorithm>
#include <span>

#include "cpu/engine.hpp"

namespace ferry::cpu {

using layout::ControlBlock;
using layout::Operation;
using layout::OperationShape;
using layout::OperationWords;

namespace {

std::int32_t* counts_at(std::byte* arena,
                        const layout::ArenaLayout& layout,
                        std::uint64_t sequence) {
  const auto slot = static_cast<std::int64_t>(sequence % ControlBlock::kRing);
  return reinterpret_cast<std::int32_t*>(arena + layout.counts + slot * layout.counts_pitch);
}

}  // namespace

std::shared_ptr<RouteState> Engine::begin_route(const RouteArgs& args) {
  auto route = std::make_shared<RouteState>();
  route->shape = args.shape;
  route->sizing = args.sizing;
  route->is_topk_int64 = args.topk.is_int64;
  route->is_overflow_error = args.is_overflow_error;
  route->worst_rows = args.worst_rows;
  route->owners = args.owners;

  std::optional<Error> error = args.error;
  if (!error) {
    route->num_tokens = args.topk.num_tokens;
    route->topk.resize(static_cast<std::size_t>(args.topk.num_tokens * config_.top_k));
    const auto fault =
        plan::read_topk(args.topk, config_.num_experts, config_.accepts_duplicates, route->topk);
    if (fault) {
      error.emplace(ErrorCode::kInvalidArgument,
                    plan::describe(*fault, rank(), config_.num_experts));
      // A low-latency dispatch may send along this route before its error is heard.
      route->num_tokens = 0;
      route->topk.clear();
    }
  }

  // The counts go into the ring slot of the operation that is about to be published; publish() has
  // made sure of its emptiness for the header, so plan the routes that still need it first.
  const std::uint64_t next = gate_.next_sequence();
  if (next > 2) {
    plan_pending_routes(next - 2);
    gate_.wait_all(Word::kPublished, next - 2, next - 2);
  }
  if (!error) {
    std::int32_t* counts = counts_at(arena_.base(), layout_, next);
    const auto num_experts = static_cast<std::size_t>(config_.num_experts);
    plan::count_topk(route->topk, config_.top_k, *route->owners, std::span(counts, num_experts),
                     std::span(counts + num_experts, static_cast<std::size_t>(num_ranks())));
  }

  OperationShape shape;
  shape.operation = static_cast<std::int32_t>(Operation::kRoute);
  shape.layout = static_cast<std::int32_t>(args.shape.layout);
  shape.topk_idx_bytes = args.topk.is_int64 ? 8 : 4;
  OperationWords words;
  words.num_tokens = route->num_tokens;
  set_error(words, error);
  route->sequence = publish(shape, words);
  pending_routes_.push_back(route);
  return route;
}

void Engine::finish_route(RouteState& route) {
  if (!route.is_planned) plan_pending_routes(route.sequence);
  if (route.error) throw_error(route.error->code(), route.error->what());
}

// Routes are planned in the order of their operations, each while its ring slot still stands.
void Engine::plan_pending_routes(std::uint64_t up_to) {
  while (!pending_routes_.empty() && pending_routes_.front()->sequence <= up_to) {
    const std::shared_ptr<RouteState> route = pending_routes_.front();
    plan_route(*route);
    pending_routes_.erase(pending_routes_.begin());
  }
}

void Engine::plan_route(RouteState& route) {
  try {
    gate_.pass(route.sequence);
  } catch (const TimeoutError&) {
    throw;
  } catch (const PeerLostError&) {
    throw;
  } catch (const Error& error) {
    if (gate_.has_fault()) throw;  // a fault of the group, not of this route
    route.error = error;
    route.is_planned = true;
    return;
  }

  std::vector<plan::SourceCounts> counts;
  const auto num_experts = static_cast<std::size_t>(config_.num_experts);
  for (int source = 0; source < num_ranks(); ++source) {
    const std::int32_t* start = counts_at(arena_.base_of(source), layout_, route.sequence);
    counts.push_back({std::span(start, num_experts),
                      std::span(start + num_experts, static_cast<std::size_t>(num_ranks()))});
  }

  route.is_planned = true;
  route.error = capture_error([&] { plan_rows(route, counts); });
}

// Everything here is derived from the counts of all ranks, so an error is the same on every rank.
void Engine::plan_rows(RouteState& route, const std::vector<plan::SourceCounts>& counts) {
  route.num_rows_of = engine::cap_num_rows(counts, route);
  route.receive = plan::plan_receive(counts, *route.owners, route.shape, rank());
  const std::vector<std::int64_t> bases =
      plan::plan_bases(counts, *route.owners, route.shape, rank());
  route.send = plan::plan_send(route.topk, *route.owners, route.shape, bases);
  const auto& experts = route.owners->experts_of[static_cast<std::size_t>(rank())];
  route.local_counts.reserve(experts.size() * static_cast<std::size_t>(num_ranks()));
  for (const std::int32_t expert : experts)
    for (const plan::SourceCounts& source : counts)
      route.local_counts.push_back(source.per_expert[static_cast<std::size_t>(expert)]);
  counters_.dropped_rows += route.send.num_dropped;
  route.counters.dropped_rows = route.send.num_dropped;
}

}  // namespace ferry::cpu
