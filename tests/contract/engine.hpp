#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "ferry/exchange.hpp"
#include "support/host_tensor.hpp"

// What the contract suites know about an engine. A suite is a value-parameterised fixture; each
// engine instantiates it in a file of its own (cpu_engine.cc), so one text judges them all.

namespace ferry::contract {

// Tensors of one rank where the engine wants them.
class EngineMemory {
 public:
  virtual ~EngineMemory() = default;

  // A copy of `tensor` in the engine's memory, valid while this object lives.
  [[nodiscard]] virtual TensorView place(const support::HostTensor& tensor) = 0;
  // The bytes behind any view, strides honoured.
  [[nodiscard]] virtual support::HostTensor fetch(const TensorView& view) const = 0;
  // The same for a dense view, fast.
  [[nodiscard]] virtual support::HostTensor fetch_dense(const TensorView& view) const = 0;
  // Waits for what this thread has enqueued; nothing where calls return when they are done.
  virtual void settle() {}
  // Frees everything that was placed.
  virtual void release() = 0;
  // Overwrites what a dense view shows.
  virtual void overwrite(const TensorView& view, const support::HostTensor& tensor) = 0;
};

struct EngineUnderTest {
  std::string name;  // letters and digits: part of test names
  Mode mode = Mode::kHighThroughput;
  Sizing sizing = Sizing::kExact;
  std::function<Device(int rank)> device;
  bool has_chunks = true;  // batches beyond memory_limit go in pieces
  std::function<std::unique_ptr<EngineMemory>(int rank)> make_memory;
};
inline void PrintTo(const EngineUnderTest& engine, std::ostream* out) { *out << engine.name; }

}  // namespace ferry::contract
