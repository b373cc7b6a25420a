#pragma once

#include <vector>

namespace ferry::topo {

// Which rank is on which node. Nodes are numbered by their lowest rank, local ranks by rank.
struct NodeMap {
  std::vector<int> node_of;        // [num_ranks]
  std::vector<int> local_rank_of;  // [num_ranks]: index among the ranks of its node
  int num_nodes = 0;
};

// Groups ranks into nodes by what they found out: can_map[a][b] says that rank a can map rank b's
// memory. Every rank can map itself, whatever is said. Mapping must be mutual, and who maps a rank
// must map all that this rank maps; else kInvalidArgument naming the ranks.
// num_pretended_nodes > 1 then splits every node into that many equal runs of its ranks; a node
// that cannot be split evenly is kInvalidArgument. 0 and 1 pretend nothing. Pure.
[[nodiscard]] NodeMap make_node_map(const std::vector<std::vector<bool>>& can_map,
                                    int num_pretended_nodes);

}  // namespace ferry::topo
