#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/operation.hpp"
#include "layout/arena_layout.hpp"
#include "layout/control_block.hpp"

namespace ferry::engine {

// One rank's engine of one exchange: what is done once arguments are valid. Every function is
// collective and called by the exchange's thread unless said otherwise. The CPU engine works in the
// calling thread; the CUDA engine enqueues on the operation's stream.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  // Publishes this rank's counts; does not wait for the peers'.
  [[nodiscard]] virtual std::shared_ptr<RouteState> begin_route(const RouteArgs& args) = 0;
  // Waits on the host for all counts. Throws the route's error. Idempotent.
  virtual void finish_route(RouteState& route) = 0;

  virtual void begin_dispatch(DispatchOperation& dispatch) = 0;
  virtual void finish_dispatch(DispatchOperation& dispatch) = 0;
  virtual void begin_combine(CombineOperation& combine) = 0;
  virtual void finish_combine(CombineOperation& combine) = 0;

  // Every buffer of low-latency dispatches (combines) is in use since the oldest outstanding one:
  // it must be finished before the next begins, or every rank would wait for its buffer for ever.
  [[nodiscard]] virtual bool must_finish_oldest_dispatch() const noexcept { return false; }
  [[nodiscard]] virtual bool must_finish_oldest_combine() const noexcept { return false; }

  // Passes when every rank calls it with the same digest.
  virtual void agree(layout::Operation operation,
                     std::uint64_t digest,
                     const std::optional<Error>& error) = 0;

  // Local. Throws the group's fault; a peer that has left makes one.
  virtual void check_alive() = 0;
  // Local. Throws invalid input that a device found after the call that brought it had returned;
  // the group lives. Called where all ranks know the same: at check() behind a synchronised stream
  // and at an exact route, never in the middle of a sequence, which some ranks would then leave and
  // others not. Does not block.
  virtual void report_refusals() {}
  // Local. The arrival deadline of the operation at hand; zero restores the configured one.
  virtual void set_arrival_timeout(std::chrono::milliseconds timeout) noexcept = 0;

  // Local. The arena, as the engine's device addresses it.
  [[nodiscard]] virtual std::byte* arena_base() const noexcept = 0;
  // The offset of a pointer into this rank's arena, or nothing.
  [[nodiscard]] virtual std::optional<std::int64_t> arena_offset(
      const void* pointer, std::int64_t bytes) const noexcept = 0;
  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  virtual void deallocate(void* pointer) = 0;
  // After a fault the memory is never handed out again: late writers may still own it.
  virtual void retire_arena() noexcept = 0;

  // Local. Overwrites a slot's rows with a recognisable pattern (debug builds).
  virtual void poison_delivery(int slot) = 0;

  // Local.
  [[nodiscard]] virtual Counters counters() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> wait_ns_by_peer() const = 0;
};

}  // namespace ferry::engine
