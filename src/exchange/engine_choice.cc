#include "exchange/engine_choice.hpp"

#include "cpu/engine.hpp"
#include "cuda/plugin.hpp"
#include "memory/arena.hpp"

namespace ferry::detail {

std::unique_ptr<engine::Engine> make_engine(boot::Store& store,
                                            memory::GroupSegments& segments,
                                            const layout::ArenaLayout& layout,
                                            const engine::EngineConfig& config,
                                            std::chrono::milliseconds timeout) {
  if (config.device.kind == DeviceKind::kCuda)
    return cuda::load_plugin().make_engine({store, segments, layout, config, timeout});
  return std::make_unique<cpu::Engine>(store, segments, memory::Arena::open(store, layout, timeout),
                                       layout, config);
}

}  // namespace ferry::detail
