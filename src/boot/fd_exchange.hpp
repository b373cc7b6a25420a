#pragma once

#include <chrono>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "boot/proof.hpp"
#include "boot/store.hpp"

namespace ferry::boot {

// Store::exchange_fds over Unix sockets, whatever the meeting ran over. Every rank listens under a
// random abstract name that it tells the group; every rank then pushes its descriptor to all names
// it can reach, which are those of its own network namespace, after checking the listener's uid. A
// thread per call takes the pushes in, so that ranks that push to each other cannot block each
// other. A push shows the group's token; one without it is dropped.
[[nodiscard]] std::vector<UniqueFd> exchange_descriptors(Store& store,
                                                         const Digest& token,
                                                         std::string_view what,
                                                         int fd,
                                                         std::chrono::milliseconds timeout);

}  // namespace ferry::boot
