#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::plan {

// Which rank owns which expert (physical slot).
struct OwnerMap {
  std::vector<std::int32_t> rank_of;                  // [num_experts]
  std::vector<std::int32_t> local_id_of;              // [num_experts], ascending expert id per rank
  std::vector<std::vector<std::int32_t>> experts_of;  // [num_ranks] -> expert ids, ascending

  [[nodiscard]] int num_experts() const { return static_cast<int>(rank_of.size()); }
  [[nodiscard]] int num_ranks() const { return static_cast<int>(experts_of.size()); }
  [[nodiscard]] int num_local(int rank) const {
    return static_cast<int>(experts_of[static_cast<std::size_t>(rank)].size());
  }
};

// E/R contiguous blocks. Throws kInvalidArgument naming the remainder when R does not divide E.
[[nodiscard]] OwnerMap make_block_owner_map(int num_experts, int num_ranks);

// Any map: expert_owner[e] in [0, num_ranks); ranks without experts are legal. Throws
// kInvalidArgument naming the expert and its owner.
[[nodiscard]] OwnerMap make_owner_map(std::span<const int> expert_owner, int num_ranks);

// Deterministic choice of one replica per selection: logical expert ids -> physical slots.
// replicas_of[logical] lists its slots; token t, column k takes slot (t * 31 + k) % count, so that
// equal tokens spread and every run agrees. -1 stays -1.
void map_replicas(std::span<const std::int32_t> logical_topk,
                  int top_k,
                  std::span<const std::vector<std::int32_t>> replicas_of,
                  std::span<std::int32_t> physical_topk);

}  // namespace ferry::plan
