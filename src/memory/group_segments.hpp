#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "boot/store.hpp"
#include "layout/group_segment.hpp"
#include "memory/shared_mapping.hpp"
#include "topo/node_map.hpp"

namespace ferry::memory {

// The small segments of a group's ranks, as this rank maps them: doorbells, waits and the sticky
// fault. Mapping them is also how nodes are found: two ranks are on one node when each can map the
// other's segment, whatever their host names say.
class GroupSegments {
 public:
  // Collective.
  [[nodiscard]] static GroupSegments open(boot::Store& store,
                                          int num_pretended_nodes,
                                          std::chrono::milliseconds timeout);

  [[nodiscard]] const topo::NodeMap& nodes() const noexcept { return nodes_; }

  // Wakes `peer` if it sleeps. Call after the release store that it waits for.
  void notify(int peer) const noexcept;
  void notify_all() const noexcept;

  // How this rank waits: a number of pauses, then yields, then sleeps on its own inbox. With more
  // ranks than usable cores pausing only delays the rank that is waited for.
  class Waiter {
   public:
    explicit Waiter(const GroupSegments& segments) noexcept;
    // Take a ticket, look at the words you wait for, then pause with that ticket: a signal that
    // arrives in between ends the pause at once.
    [[nodiscard]] std::uint32_t ticket() const noexcept;
    // Returns after a signal, or after `longest` at the latest.
    void pause(std::uint32_t ticket, std::chrono::nanoseconds longest) noexcept;

   private:
    const GroupSegments& segments_;
    int num_pauses_left_;
    int num_yields_left_;
  };

  // Records the first fault in every reachable rank's segment and wakes all. Later ones are
  // ignored.
  void raise_fault(ErrorCode code, const std::string& text) const noexcept;
  // The fault of this rank's segment, if there is one. Does not block.
  [[nodiscard]] std::optional<Error> fault() const;
  [[nodiscard]] bool has_fault() const noexcept;

 private:
  GroupSegments() = default;

  int rank_ = 0;
  bool is_oversubscribed_ = false;
  std::vector<std::shared_ptr<SharedMapping>> mappings_;  // null where unreachable
  std::vector<layout::GroupSegment*> segments_;           // likewise
  topo::NodeMap nodes_;
};

// Processors that this process may really use: its affinity mask, cut by a cgroup quota.
[[nodiscard]] int num_usable_cores();

}  // namespace ferry::memory
