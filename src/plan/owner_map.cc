#include "plan/owner_map.hpp"

#include "base/error.hpp"

namespace ferry::plan {
namespace {

constexpr int kMaxExperts = 4096;
constexpr int kMaxRanks = 2048;

void check_sizes(std::int64_t num_experts, int num_ranks) {
  FERRY_CHECK(num_experts >= 1 && num_experts <= kMaxExperts, ErrorCode::kInvalidArgument,
              "num_experts is {}, expected 1..{}", num_experts, kMaxExperts);
  FERRY_CHECK(num_ranks >= 1 && num_ranks <= kMaxRanks, ErrorCode::kInvalidArgument,
              "the group has {} ranks, expected 1..{}", num_ranks, kMaxRanks);
}

}  // namespace

OwnerMap make_block_owner_map(int num_experts, int num_ranks) {
  check_sizes(num_experts, num_ranks);
  FERRY_CHECK(num_experts % num_ranks == 0, ErrorCode::kInvalidArgument,
              "num_experts {} over {} ranks leaves a remainder of {}, expected a multiple of the "
              "ranks or an expert_owner map",
              num_experts, num_ranks, num_experts % num_ranks);
  const int num_local = num_experts / num_ranks;
  std::vector<int> expert_owner(static_cast<std::size_t>(num_experts));
  for (int expert = 0; expert < num_experts; ++expert) {
    expert_owner[static_cast<std::size_t>(expert)] = expert / num_local;
  }
  return make_owner_map(expert_owner, num_ranks);
}

OwnerMap make_owner_map(std::span<const int> expert_owner, int num_ranks) {
  check_sizes(static_cast<std::int64_t>(expert_owner.size()), num_ranks);
  OwnerMap map;
  map.rank_of.reserve(expert_owner.size());
  map.local_id_of.reserve(expert_owner.size());
  map.experts_of.resize(static_cast<std::size_t>(num_ranks));
  for (std::size_t expert = 0; expert < expert_owner.size(); ++expert) {
    const int rank = expert_owner[expert];
    FERRY_CHECK(rank >= 0 && rank < num_ranks, ErrorCode::kInvalidArgument,
                "expert_owner[{}] is {}, expected a rank in 0..{}", expert, rank, num_ranks - 1);
    std::vector<std::int32_t>& local = map.experts_of[static_cast<std::size_t>(rank)];
    map.rank_of.push_back(rank);
    map.local_id_of.push_back(static_cast<std::int32_t>(local.size()));
    local.push_back(static_cast<std::int32_t>(expert));
  }
  return map;
}

void map_replicas(std::span<const std::int32_t> logical_topk,
                  int top_k,
                  std::span<const std::vector<std::int32_t>> replicas_of,
                  std::span<std::int32_t> physical_topk) {
  FERRY_CHECK(top_k >= 1 && logical_topk.size() % static_cast<std::size_t>(top_k) == 0,
              ErrorCode::kInvalidArgument,
              "logical_topk has {} ids, expected a multiple of top_k {}", logical_topk.size(),
              top_k);
  FERRY_CHECK(physical_topk.size() == logical_topk.size(), ErrorCode::kInvalidArgument,
              "physical_topk has room for {} ids, expected {}", physical_topk.size(),
              logical_topk.size());
  const auto width = static_cast<std::size_t>(top_k);
  for (std::size_t i = 0; i < logical_topk.size(); ++i) {
    const std::int32_t logical = logical_topk[i];
    if (logical == -1) {
      physical_topk[i] = -1;
      continue;
    }
    const std::size_t token = i / width;
    const std::size_t k = i % width;
    FERRY_CHECK(logical >= 0 && static_cast<std::size_t>(logical) < replicas_of.size(),
                ErrorCode::kInvalidArgument, "logical_topk[{}, {}] is {}, expected -1 or 0..{}",
                token, k, logical, static_cast<std::int64_t>(replicas_of.size()) - 1);
    const std::vector<std::int32_t>& slots = replicas_of[static_cast<std::size_t>(logical)];
    FERRY_CHECK(!slots.empty(), ErrorCode::kInvalidArgument,
                "logical expert {} of logical_topk[{}, {}] has no physical slot", logical, token,
                k);
    physical_topk[i] = slots[(token * 31 + k) % slots.size()];
  }
}

}  // namespace ferry::plan
