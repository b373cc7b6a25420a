#include "cpu/engine.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace ferry::cpu {

using layout::ControlBlock;
using layout::OperationShape;
using layout::OperationWords;

Engine::Engine(boot::Store& store,
               memory::GroupSegments& segments,
               memory::Arena arena,
               const layout::ArenaLayout& layout,
               const EngineConfig& config)
    : layout_(layout),
      config_(config),
      arena_(std::move(arena)),
      gate_(store, segments, arena_, config.deadlines),
      pool_(config.num_threads) {
  new (arena_.base() + layout_.control) ControlBlock;
  if (config_.is_low_latency) {
    // Low-latency regions are granted for good, so their pages are reserved for good.
    arena_.reserve(layout_.ll_dispatch,
                   layout::ArenaLayout::kLowLatencyBuffers * layout_.ll_dispatch_bytes);
    for (int buffer = 0; buffer < layout::ArenaLayout::kLowLatencyBuffers; ++buffer) {
      arena_.reserve(layout_.staging[buffer], layout_.ll_combine_bytes);
    }
  }
}

void Engine::agree(layout::Operation operation,
                   std::uint64_t digest,
                   const std::optional<Error>& error) {
  OperationShape shape;
  shape.operation = static_cast<std::int32_t>(operation);
  shape.digest = digest;
  OperationWords words;
  set_error(words, error);
  gate_.pass(publish(shape, words));
}

std::uint64_t Engine::publish(const OperationShape& shape, const OperationWords& words) {
  // The ring of headers and counts holds four operations: plan routes before their slot is reused.
  const std::uint64_t next = gate_.next_sequence();
  if (next > 2) plan_pending_routes(next - 2);
  return gate_.publish(shape, words);
}

Counters Engine::counters() const {
  Counters out = counters_;
  out.arena_bytes = arena_.reserved_bytes();
  out.arena_peak_bytes = arena_.peak_reserved_bytes();
  out.wait_ns = gate_.wait_ns();
  out.wait_ns_by_peer = gate_.wait_ns_by_peer();
  return out;
}

}  // namespace ferry::cpu
