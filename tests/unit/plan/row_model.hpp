#pragma once

#include <cstdint>
#include <vector>

#include "plan/route_plan.hpp"

namespace ferry::plan {

// The ids of all ranks: topk[source] is dense [T_source * K].
using Batch = std::vector<std::vector<std::int32_t>>;

// One row as the layouts define it, found by walking the destination in order.
struct ModelRow {
  int destination = 0;
  int local_expert = 0;  // kByRank: unused
  int source = 0;
  std::int64_t token = 0;
  int k = 0;     // kByRank: the highest
  int slot = 0;  // kByRank: the destination's position among the token's
  std::int64_t row = 0;
};

// Slow and obvious: for every destination, every row that could stand there.
class RowModel {
 public:
  RowModel(const Batch& batch, const OwnerMap& owners, const RouteShape& shape)
      : batch_(batch), owners_(owners), shape_(shape) {
    for (int rank = 0; rank < owners.num_ranks(); ++rank) {
      shape.layout == Layout::kByRank ? walk_tokens(rank) : walk_experts(rank);
    }
  }

  std::vector<ModelRow> rows;                            // dropped ones too
  std::vector<std::int64_t> num_rows;                    // [R], gaps included, no cap
  std::vector<std::vector<std::int64_t>> expert_starts;  // [R][E_l + 1], no cap

 private:
  [[nodiscard]] std::int64_t num_tokens(int source) const {
    return static_cast<std::int64_t>(batch_[static_cast<std::size_t>(source)].size()) /
           shape_.top_k;
  }
  [[nodiscard]] int expert_at(int source, std::int64_t token, int k) const {
    return batch_[static_cast<std::size_t>(source)]
                 [static_cast<std::size_t>(token * shape_.top_k + k)];
  }
  [[nodiscard]] bool leads_to(int rank, int source, std::int64_t token, int k) const {
    const int expert = expert_at(source, token, k);
    return expert >= 0 && owners_.rank_of[static_cast<std::size_t>(expert)] == rank;
  }
  [[nodiscard]] bool sends_to(int rank, int source, std::int64_t token) const {
    for (int k = 0; k < shape_.top_k; ++k) {
      if (leads_to(rank, source, token, k)) return true;
    }
    return false;
  }

  void walk_tokens(int rank) {
    std::int64_t row = 0;
    for (int source = 0; source < owners_.num_ranks(); ++source) {
      for (std::int64_t token = 0; token < num_tokens(source); ++token) {
        if (!sends_to(rank, source, token)) continue;
        ModelRow found{rank, 0, source, token, 0, 0, row++};
        for (int k = 0; k < shape_.top_k; ++k) {
          if (leads_to(rank, source, token, k)) found.k = k;
        }
        for (int before = 0; before < rank; ++before) {
          if (sends_to(before, source, token)) ++found.slot;
        }
        rows.push_back(found);
      }
    }
    num_rows.push_back(row);
    expert_starts.emplace_back();
  }

  void walk_experts(int rank) {
    std::int64_t row = 0;
    std::vector<std::int64_t> starts;
    for (int local = 0; local < owners_.num_local(rank); ++local) {
      const std::int64_t region = owners_.num_ranks() * shape_.max_tokens;
      if (shape_.layout == Layout::kPadded) row = local * region;
      starts.push_back(row);
      const int expert =
          owners_.experts_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(local)];
      for (int source = 0; source < owners_.num_ranks(); ++source) {
        for (std::int64_t token = 0; token < num_tokens(source); ++token) {
          for (int k = 0; k < shape_.top_k; ++k) {
            if (expert_at(source, token, k) != expert) continue;
            rows.push_back({rank, local, source, token, k, k, row++});
          }
        }
      }
      while (row % shape_.expert_alignment != 0) ++row;
      if (shape_.layout == Layout::kPadded) row = (local + 1) * region;
    }
    starts.push_back(row);
    num_rows.push_back(row);
    expert_starts.push_back(starts);
  }

  const Batch& batch_;
  const OwnerMap& owners_;
  const RouteShape& shape_;
};

}  // namespace ferry::plan
