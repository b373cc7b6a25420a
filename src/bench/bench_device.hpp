#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bench/ceiling.hpp"
#include "bench/options.hpp"
#include "ferry/tensor.hpp"

namespace ferry::bench {

// Operations that are recorded once and then run again as one piece.
class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;
  // What `enqueue` puts on the device's stream becomes a graph; its number is returned.
  [[nodiscard]] virtual int capture(const std::function<void()>& enqueue) = 0;
  // Does not block.
  virtual void replay(int graph) = 0;
};

// Where one rank's tensors live and how its operations are timed: all in which the bench of one
// engine differs from that of another. Used by the rank's thread.
class BenchDevice {
 public:
  BenchDevice() = default;
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;
  virtual ~BenchDevice() = default;

  [[nodiscard]] virtual Device device() const noexcept = 0;
  [[nodiscard]] virtual StreamRef stream() const noexcept = 0;  // of all operations
  [[nodiscard]] virtual std::string name() const = 0;           // a GPU's; empty on the CPU
  [[nodiscard]] virtual int num_devices() const noexcept = 0;   // GPUs to choose from; 0 on the CPU

  // Freed with the last copy of the pointer, at the latest before this goes.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::int64_t bytes) = 0;
  // Between host and device either way, after what is on the stream; blocks until done.
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  // Ordered on the stream.
  virtual void fill(void* to, unsigned char value, std::int64_t bytes) = 0;
  virtual void synchronize() = 0;

  // Time that the operations between the two calls take; stop waits for them.
  virtual void start_clock() = 0;
  [[nodiscard]] virtual std::int64_t stop_clock_ns() = 0;

  // Whether operations return before they are done, so that many can be enqueued at once.
  [[nodiscard]] virtual bool runs_ahead() const noexcept = 0;
  // Null where operations cannot be recorded.
  [[nodiscard]] virtual DeviceGraphs* graphs() noexcept = 0;

  [[nodiscard]] virtual Ceiling measure_ceiling(std::int64_t row_bytes) = 0;
};

[[nodiscard]] std::unique_ptr<BenchDevice> make_host_device();

// GPU number rank % the number of GPUs. Throws kUnavailable where the engine cannot be loaded.
[[nodiscard]] std::unique_ptr<BenchDevice> open_cuda_device(int rank);

// Of the engine that `options` name.
[[nodiscard]] std::unique_ptr<BenchDevice> open_bench_device(const BenchOptions& options, int rank);

// Nanoseconds that `call` takes on `device`.
template <typename Call>
[[nodiscard]] std::int64_t time_ns(BenchDevice& device, Call&& call) {
  device.start_clock();
  call();
  return device.stop_clock_ns();
}

}  // namespace ferry::bench
