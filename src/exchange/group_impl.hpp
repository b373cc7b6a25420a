#pragma once

#include <chrono>
#include <memory>

#include "boot/store.hpp"
#include "engine/operation.hpp"
#include "ferry/group.hpp"
#include "memory/group_segments.hpp"

namespace ferry::detail {

// One rank's membership: the control path, the mapped segments and the deadlines. Ends with leave()
// or the destructor; the memory that peers have mapped outlives it.
class GroupImpl {
 public:
  struct Timeouts {
    std::chrono::milliseconds meeting;
    engine::Deadlines deadlines;
  };

  // Collective: finds the nodes and starts to watch the peers.
  GroupImpl(std::unique_ptr<boot::Store> store, int num_pretended_nodes, const Timeouts& timeouts);
  GroupImpl(const GroupImpl&) = delete;
  GroupImpl& operator=(const GroupImpl&) = delete;
  ~GroupImpl();

  [[nodiscard]] int rank() const noexcept { return store_->rank(); }
  [[nodiscard]] int size() const noexcept { return store_->size(); }
  [[nodiscard]] boot::Store& store() noexcept { return *store_; }
  [[nodiscard]] memory::GroupSegments& segments() noexcept { return segments_; }
  [[nodiscard]] const topo::NodeMap& nodes() const noexcept { return segments_.nodes(); }
  [[nodiscard]] const Timeouts& timeouts() const noexcept { return timeouts_; }

  // Throws the sticky fault.
  void check() const;
  void leave() noexcept;

 private:
  std::unique_ptr<boot::Store> store_;
  Timeouts timeouts_;
  memory::GroupSegments segments_;
};

// The environment's values where `config` says nothing.
[[nodiscard]] GroupImpl::Timeouts resolve_timeouts(const GroupConfig& config);

}  // namespace ferry::detail
