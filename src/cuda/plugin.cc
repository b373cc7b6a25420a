#include "cuda/plugin.hpp"

#include "cuda/device_tools.hpp"
#include "cuda/engine.hpp"

namespace ferry::cuda {

namespace {

std::unique_ptr<engine::Engine> make_engine(const EngineArgs& args) {
  auto engine = std::make_unique<Engine>(args);
  engine->start(args.meeting_timeout);
  return engine;
}

constexpr Plugin kPlugin{kPluginAbi, &make_engine, &num_devices, &open_device_tools};

}  // namespace

}  // namespace ferry::cuda

// The one symbol that the plugin shows.
extern "C" __attribute__((visibility("default"))) const ferry::cuda::Plugin* ferry_cuda_plugin() {
  return &ferry::cuda::kPlugin;
}
