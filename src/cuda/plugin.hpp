#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "boot/store.hpp"
#include "engine/engine.hpp"
#include "layout/arena_layout.hpp"
#include "memory/group_segments.hpp"

// The border between the core, which knows no CUDA, and the plugin that holds the CUDA engine. Both
// sides are built from the same sources; kPluginAbi tells builds apart that were not.
namespace ferry::cuda {

// What an engine is made of. References outlive it.
struct EngineArgs {
  boot::Store& store;
  memory::GroupSegments& segments;
  layout::ArenaLayout layout;
  engine::EngineConfig config;
  std::chrono::milliseconds meeting_timeout;
};

// One GPU for programs that measure and test without knowing CUDA. Every function throws kSystem
// with CUDA's words.
class DeviceTools {
 public:
  virtual ~DeviceTools() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int num_sms() const = 0;
  [[nodiscard]] virtual std::int64_t free_bytes() const = 0;

  // Neither waits for other work on the GPU, which may be waiting for this rank.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* pointer) noexcept = 0;
  // Between host and device either way, or on the device; ordered on the stream, blocks until done.
  virtual void copy(void* to, const void* from, std::int64_t bytes, StreamRef stream) = 0;
  // Ordered on the stream; does not block.
  virtual void fill(void* to, unsigned char value, std::int64_t bytes, StreamRef stream) = 0;
  // Device to device, does not block: what a ceiling is measured with.
  virtual void copy_on_device(void* to, const void* from, std::int64_t bytes, StreamRef stream) = 0;
  // Keeps the stream busy for this long; does not block.
  virtual void delay(std::chrono::microseconds time, StreamRef stream) = 0;

  // What the engine takes for "no stream" where ranks are threads: the calling thread's own.
  [[nodiscard]] virtual StreamRef thread_stream() const = 0;
  [[nodiscard]] virtual StreamRef make_stream() = 0;
  virtual void destroy_stream(StreamRef stream) noexcept = 0;
  virtual void synchronize(StreamRef stream) = 0;

  // Marks of time on a stream, numbered by the caller; elapsed_us waits for both.
  virtual void mark(int number, StreamRef stream) = 0;
  [[nodiscard]] virtual double elapsed_us(int from, int to) = 0;

  // What is enqueued from begin_capture() to end_capture() becomes a graph; its number is returned.
  virtual void begin_capture(StreamRef stream) = 0;
  [[nodiscard]] virtual int end_capture(StreamRef stream) = 0;
  virtual void replay(int graph, StreamRef stream) = 0;
};

struct Plugin {
  const char* abi;  // kPluginAbi of the build
  // Collective. Throws kUnavailable naming driver and runtime versions, kNoResource, kSystem.
  std::unique_ptr<engine::Engine> (*make_engine)(const EngineArgs& args);
  // Throws kUnavailable.
  int (*num_devices)();
  std::unique_ptr<DeviceTools> (*open_device)(int index);
};

// Changes with every change of what crosses the border.
inline constexpr const char* kPluginAbi = "ferry-cuda-2";
inline constexpr const char* kPluginEntry = "ferry_cuda_plugin";
inline constexpr const char* kPluginFile = "libferry_cuda.so";
using PluginEntry = const Plugin* (*)();

// Loads the plugin once, from FERRY_PLUGIN_DIR or from beside this library (or the ferry program's
// ../lib). Throws kUnavailable naming the files tried and the loader's words.
[[nodiscard]] const Plugin& load_plugin();

}  // namespace ferry::cuda
