#pragma once

#include <chrono>
#include <memory>

#include "boot/store.hpp"
#include "engine/engine.hpp"
#include "layout/arena_layout.hpp"
#include "memory/group_segments.hpp"

namespace ferry::detail {

// Collective: the engine of the configured device, over a new arena.
[[nodiscard]] std::unique_ptr<engine::Engine> make_engine(boot::Store& store,
                                                          memory::GroupSegments& segments,
                                                          const layout::ArenaLayout& layout,
                                                          const engine::EngineConfig& config,
                                                          std::chrono::milliseconds timeout);

}  // namespace ferry::detail
