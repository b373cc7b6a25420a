#include <chrono>
#include <cstring>

#include "bench/bench_device.hpp"
#include "bench/host_buffer.hpp"

namespace ferry::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Operations run in the calling thread: there is nothing to wait for.
class HostDevice final : public BenchDevice {
 public:
  [[nodiscard]] Device device() const noexcept override { return Device::cpu(); }
  [[nodiscard]] StreamRef stream() const noexcept override { return {}; }
  [[nodiscard]] std::string name() const override { return {}; }
  [[nodiscard]] int num_devices() const noexcept override { return 0; }

  [[nodiscard]] std::shared_ptr<void> allocate(std::int64_t bytes) override {
    const auto buffer = std::make_shared<HostBuffer>(bytes);
    return {buffer, buffer->base()};
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill(void* to, unsigned char value, std::int64_t bytes) override {
    if (bytes > 0) std::memset(to, value, static_cast<std::size_t>(bytes));
  }
  void synchronize() override {}

  void start_clock() override { start_ = Clock::now(); }
  [[nodiscard]] std::int64_t stop_clock_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  [[nodiscard]] bool runs_ahead() const noexcept override { return false; }
  [[nodiscard]] DeviceGraphs* graphs() noexcept override { return nullptr; }

  [[nodiscard]] Ceiling measure_ceiling(std::int64_t row_bytes) override {
    return bench::measure_ceiling({.row_bytes = row_bytes});
  }

 private:
  Clock::time_point start_;
};

}  // namespace

std::unique_ptr<BenchDevice> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace ferry::bench
