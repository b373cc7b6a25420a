#include "topo/node_map.hpp"

#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace ferry::topo {

namespace {

using Matrix = std::vector<std::vector<bool>>;

void check_square(const Matrix& can_map) {
  for (std::size_t rank = 0; rank < can_map.size(); ++rank) {
    FERRY_CHECK(can_map[rank].size() == can_map.size(), ErrorCode::kInvalidArgument,
                "rank {} tells of {} ranks that it can map or not, expected {}", rank,
                can_map[rank].size(), can_map.size());
  }
}

void check_symmetric(const Matrix& can_map) {
  for (std::size_t a = 0; a < can_map.size(); ++a) {
    for (std::size_t b = a + 1; b < can_map.size(); ++b) {
      if (can_map[a][b] == can_map[b][a]) continue;
      const auto [can, cannot] = can_map[a][b] ? std::pair(a, b) : std::pair(b, a);
      FERRY_THROW(ErrorCode::kInvalidArgument,
                  "rank {} can map the memory of rank {}, but rank {} cannot map that of rank {}",
                  can, cannot, cannot, can);
    }
  }
}

// The lowest rank that each rank maps stands for its node. With mutual mapping, nodes are sets
// exactly when ranks that map each other agree on every third rank.
std::vector<std::size_t> find_lowest(const Matrix& can_map) {
  std::vector<std::size_t> lowest(can_map.size());
  for (std::size_t rank = 0; rank < can_map.size(); ++rank) {
    while (lowest[rank] < rank && !can_map[rank][lowest[rank]]) ++lowest[rank];
  }
  return lowest;
}

void check_transitive(const Matrix& can_map, const std::vector<std::size_t>& lowest) {
  for (std::size_t rank = 0; rank < can_map.size(); ++rank) {
    const std::size_t first = lowest[rank];
    for (std::size_t other = 0; other < can_map.size(); ++other) {
      if (other == rank || other == first || can_map[rank][other] == can_map[first][other])
        continue;
      const auto [can, cannot] =
          can_map[rank][other] ? std::pair(rank, first) : std::pair(first, rank);
      FERRY_THROW(
          ErrorCode::kInvalidArgument,
          "ranks {} and {} can map each other, but of the two only rank {} can map rank {}; "
          "ranks of one node must all map each other",
          can, cannot, can, other);
    }
  }
}

}  // namespace

NodeMap make_node_map(const Matrix& can_map, int num_pretended_nodes) {
  FERRY_CHECK(num_pretended_nodes >= 0, ErrorCode::kInvalidArgument,
              "the number of pretended nodes is {}, expected 0 or more", num_pretended_nodes);
  check_square(can_map);
  check_symmetric(can_map);
  const std::vector<std::size_t> lowest = find_lowest(can_map);
  check_transitive(can_map, lowest);

  const std::size_t num_ranks = can_map.size();
  const auto num_parts =
      static_cast<std::size_t>(num_pretended_nodes > 1 ? num_pretended_nodes : 1);
  std::vector<std::size_t> num_ranks_of(num_ranks);   // of the node whose lowest rank this is
  std::vector<std::size_t> index_in_node(num_ranks);  // in the real node
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    index_in_node[rank] = num_ranks_of[lowest[rank]]++;
  }

  NodeMap map;
  std::vector<int> current_node(num_ranks);  // of the real node whose lowest rank this is
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const std::size_t first = lowest[rank];
    FERRY_CHECK(num_ranks_of[first] % num_parts == 0, ErrorCode::kInvalidArgument,
                "the {} ranks of rank {}'s node cannot be split evenly into {} pretended nodes",
                num_ranks_of[first], first, num_parts);
    const std::size_t local_rank = index_in_node[rank] % (num_ranks_of[first] / num_parts);
    if (local_rank == 0) current_node[first] = map.num_nodes++;
    map.node_of.push_back(current_node[first]);
    map.local_rank_of.push_back(static_cast<int>(local_rank));
  }
  return map;
}

}  // namespace ferry::topo
