// A CUDA engine for machines without a GPU: one card, whose memory is the host's and whose engine
// is the CPU's. What `ferry bench --engine cuda` does around an engine is tested with it.

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "cpu/engine.hpp"
#include "cuda/plugin.hpp"
#include "memory/arena.hpp"

namespace ferry::cuda {
namespace {

using Clock = std::chrono::steady_clock;

class FakeTools final : public DeviceTools {
 public:
  std::string name() const override { return "Fake GPU"; }
  int num_sms() const override { return 1; }
  std::int64_t free_bytes() const override { return std::int64_t{1} << 40; }

  void* allocate(std::int64_t bytes) override {
    return std::malloc(static_cast<std::size_t>(bytes));
  }
  void release(void* pointer) noexcept override { std::free(pointer); }
  void copy(void* to, const void* from, std::int64_t bytes, StreamRef stream) override {
    check(stream);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill(void* to, unsigned char value, std::int64_t bytes, StreamRef stream) override {
    check(stream);
    std::memset(to, value, static_cast<std::size_t>(bytes));
  }
  void copy_on_device(void* to, const void* from, std::int64_t bytes, StreamRef stream) override {
    copy(to, from, bytes, stream);
  }
  void delay(std::chrono::microseconds time, StreamRef) override {
    std::this_thread::sleep_for(time);
  }

  StreamRef thread_stream() const override { return {}; }
  StreamRef make_stream() override { return {this}; }
  void destroy_stream(StreamRef) noexcept override {}
  void synchronize(StreamRef stream) override { check(stream); }

  void mark(int number, StreamRef stream) override {
    check(stream);
    marks_[number] = Clock::now();
  }
  double elapsed_us(int from, int to) override {
    return std::chrono::duration<double, std::micro>(marks_.at(to) - marks_.at(from)).count();
  }

  void begin_capture(StreamRef stream) override { check(stream); }
  int end_capture(StreamRef) override { return num_graphs_++; }
  void replay(int graph, StreamRef) override {
    FERRY_CHECK(graph < num_graphs_, ErrorCode::kSystem, "graph {} is none", graph);
  }

 private:
  // The default stream is no bench's: ranks that are threads would wait for each other.
  static void check(StreamRef stream) {
    FERRY_CHECK(stream.handle != nullptr, ErrorCode::kSystem, "the default stream is used");
  }

  std::map<int, Clock::time_point> marks_;
  int num_graphs_ = 0;
};

std::unique_ptr<engine::Engine> make_engine(const EngineArgs& args) {
  return std::make_unique<cpu::Engine>(
      args.store, args.segments, memory::Arena::open(args.store, args.layout, args.meeting_timeout),
      args.layout, args.config);
}

int num_devices() { return 1; }
std::unique_ptr<DeviceTools> open_device(int) { return std::make_unique<FakeTools>(); }

constexpr Plugin kPlugin = {kPluginAbi, make_engine, num_devices, open_device};

}  // namespace
}  // namespace ferry::cuda

extern "C" __attribute__((visibility("default"))) const ferry::cuda::Plugin* ferry_cuda_plugin() {
  return &ferry::cuda::kPlugin;
}
