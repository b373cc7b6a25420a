#pragma once

#include "boot/connection.hpp"
#include "boot/socket.hpp"
#include "boot/store.hpp"

namespace ferry::boot {

struct Joined {
  Connection connection;
  GroupId group_id{};
};

// Connects to rank 0 and proves membership both ways. Tries again while nobody answers, what
// answers is no store, or the connection breaks; ends at once where rank 0 refuses. Throws
// kInvalidArgument or kUnavailable (refused), kPeerLost (the group broke while it formed), kSystem
// (another user's socket, a host that cannot be reached), kTimeout (rank 0 is not there), with the
// last cause.
[[nodiscard]] Joined join(const Meeting& meeting,
                          const Address& address,
                          const Key& key,
                          Deadline deadline);

}  // namespace ferry::boot
