#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry::support {

// Who sends what where: the top-k ids of all ranks, with weights that are exact powers of two.
struct Routing {
  int num_experts = 0;
  int top_k = 0;
  std::vector<int> expert_owner;                // [E]
  std::vector<std::vector<std::int32_t>> topk;  // [R], each [T * K]
  std::vector<std::vector<float>> weights;      // [R], each [T * K]

  [[nodiscard]] int num_ranks() const { return static_cast<int>(topk.size()); }
  [[nodiscard]] std::int64_t num_tokens(int rank) const {
    return static_cast<std::int64_t>(topk[static_cast<std::size_t>(rank)].size()) / top_k;
  }
  [[nodiscard]] std::int64_t max_num_tokens() const;
  // Experts of one rank, ascending.
  [[nodiscard]] std::vector<int> experts_of(int rank) const;
};

// Contiguous blocks; the first E mod R ranks own one more.
[[nodiscard]] std::vector<int> block_owners(int num_experts, int num_ranks);

// By hand: ids[rank][token] lists top_k ids. Owners default to blocks.
[[nodiscard]] Routing make_routing(int num_experts,
                                   const std::vector<std::vector<std::vector<int>>>& ids,
                                   std::vector<int> expert_owner = {});

enum class Pattern {
  kUniform,         // distinct experts, every choice alike
  kSomeMasked,      // a quarter of the ids is -1, some whole tokens too
  kOneExpert,       // column 0 is the last expert, the others -1
  kSameExperts,     // every token picks experts 0..K-1
  kAllMasked,       // -1 everywhere
  kOneRankActive,   // rank 0 as kUniform, every token of the others -1
  kWithDuplicates,  // experts may repeat inside a token
};

struct RandomRouting {
  int num_experts = 8;
  int top_k = 2;
  std::vector<std::int64_t> num_tokens;  // [R]
  Pattern pattern = Pattern::kUniform;
  std::vector<int> expert_owner;  // empty: blocks
};
[[nodiscard]] Routing random_routing(const RandomRouting& what, std::uint64_t seed);

// Different token counts per rank, at most max_tokens; rank `zero_rank` has none.
[[nodiscard]] std::vector<std::int64_t> uneven_tokens(int num_ranks,
                                                      std::int64_t max_tokens,
                                                      int zero_rank = -1);

// For failure messages: shape, owners, and the first tokens of every rank.
[[nodiscard]] std::string describe(const Routing& routing);

}  // namespace ferry::support
