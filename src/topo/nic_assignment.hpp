#pragma once

#include <vector>

#include "topo/distance.hpp"

namespace ferry::topo {

// One NIC for each GPU: distances[gpu][nic] with the same number of NICs in each row.
// No NIC serves two GPUs while another serves none; among the assignments for which that holds the
// sum of distances is least; among those it is the one with the lowest NIC for GPU 0, then for
// GPU 1, and so on. The result depends on the order of devices only, not on their names.
// Returns [num_gpus] positions of NICs, -1 for every GPU where there is no NIC. Pure.
[[nodiscard]] std::vector<int> assign_nics(const std::vector<std::vector<Distance>>& distances);

// The NIC nearest to each GPU, the first of several: what a library chooses that looks at one GPU
// alone. Where GPUs and NICs share a switch in pairs, it leaves half of the NICs idle.
[[nodiscard]] std::vector<int> nearest_nics(const std::vector<std::vector<Distance>>& distances);

}  // namespace ferry::topo
