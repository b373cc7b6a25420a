#include "support/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "support/host_tensor.hpp"

namespace ferry::support {
namespace {

// Weights of exact powers of two keep every product of the tests exact.
void fill_weights(Routing& routing) {
  constexpr float kChoices[] = {0.25F, 0.5F, 1.0F, 2.0F};
  routing.weights.clear();
  for (std::size_t rank = 0; rank < routing.topk.size(); ++rank) {
    std::vector<float> weights(routing.topk[rank].size());
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = kChoices[static_cast<std::size_t>(small_integer(77, rank, i) + 7) % 4];
    routing.weights.push_back(std::move(weights));
  }
}

class TokenMaker {
 public:
  TokenMaker(const RandomRouting& what, std::uint64_t seed) : what_(what), random_(seed) {
    for (int expert = 0; expert < what.num_experts; ++expert) pool_.push_back(expert);
  }

  void append(int rank, std::vector<std::int32_t>& out) {
    switch (what_.pattern) {
      case Pattern::kUniform: return append_distinct(out, false);
      case Pattern::kSomeMasked: return append_distinct(out, true);
      case Pattern::kOneExpert:
        out.push_back(what_.num_experts - 1);
        out.insert(out.end(), static_cast<std::size_t>(what_.top_k - 1), -1);
        return;
      case Pattern::kSameExperts:
        for (int k = 0; k < what_.top_k; ++k) out.push_back(k);
        return;
      case Pattern::kAllMasked: return append_masked(out);
      case Pattern::kOneRankActive:
        return rank == 0 ? append_distinct(out, false) : append_masked(out);
      case Pattern::kWithDuplicates:
        for (int k = 0; k < what_.top_k; ++k) out.push_back(below(what_.num_experts));
        return;
    }
  }

 private:
  // Not std::uniform_int_distribution: its results differ between standard libraries.
  std::int32_t below(int limit) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(limit));
  }

  void append_masked(std::vector<std::int32_t>& out) const {
    out.insert(out.end(), static_cast<std::size_t>(what_.top_k), -1);
  }

  void append_distinct(std::vector<std::int32_t>& out, bool is_masked) {
    if (is_masked && below(8) == 0) return append_masked(out);
    for (int k = 0; k < what_.top_k; ++k) {
      const int pick = k + below(what_.num_experts - k);
      std::swap(pool_[static_cast<std::size_t>(k)], pool_[static_cast<std::size_t>(pick)]);
      out.push_back(is_masked && below(4) == 0 ? -1 : pool_[static_cast<std::size_t>(k)]);
    }
  }

  const RandomRouting& what_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> pool_;
};

}  // namespace

std::int64_t Routing::max_num_tokens() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) most = std::max(most, num_tokens(rank));
  return most;
}

std::vector<int> Routing::experts_of(int rank) const {
  std::vector<int> experts;
  for (int expert = 0; expert < num_experts; ++expert)
    if (expert_owner[static_cast<std::size_t>(expert)] == rank) experts.push_back(expert);
  return experts;
}

std::vector<int> block_owners(int num_experts, int num_ranks) {
  std::vector<int> owners;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    owners.insert(owners.end(), static_cast<std::size_t>(count), rank);
  }
  return owners;
}

Routing make_routing(int num_experts,
                     const std::vector<std::vector<std::vector<int>>>& ids,
                     std::vector<int> expert_owner) {
  Routing routing;
  routing.num_experts = num_experts;
  for (const auto& tokens : ids) {
    std::vector<std::int32_t> flat;
    for (const auto& token : tokens) {
      routing.top_k = static_cast<int>(token.size());
      flat.insert(flat.end(), token.begin(), token.end());
    }
    routing.topk.push_back(std::move(flat));
  }
  routing.expert_owner = expert_owner.empty() ? block_owners(num_experts, routing.num_ranks())
                                              : std::move(expert_owner);
  fill_weights(routing);
  return routing;
}

Routing random_routing(const RandomRouting& what, std::uint64_t seed) {
  Routing routing;
  routing.num_experts = what.num_experts;
  routing.top_k = what.top_k;
  const int num_ranks = static_cast<int>(what.num_tokens.size());
  routing.expert_owner =
      what.expert_owner.empty() ? block_owners(what.num_experts, num_ranks) : what.expert_owner;
  TokenMaker maker(what, seed);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<std::int32_t> flat;
    for (std::int64_t t = 0; t < what.num_tokens[static_cast<std::size_t>(rank)]; ++t)
      maker.append(rank, flat);
    routing.topk.push_back(std::move(flat));
  }
  fill_weights(routing);
  return routing;
}

std::vector<std::int64_t> uneven_tokens(int num_ranks, std::int64_t max_tokens, int zero_rank) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < num_ranks; ++rank)
    counts.push_back(rank == zero_rank ? 0 : max_tokens - rank * max_tokens / (num_ranks + 1));
  return counts;
}

std::string describe(const Routing& routing) {
  constexpr std::int64_t kShown = 6;
  std::string text = fmt::format("E {} K {} owners [{}]\n", routing.num_experts, routing.top_k,
                                 fmt::join(routing.expert_owner, " "));
  if (routing.num_experts > 64)
    text = fmt::format("E {} K {}\n", routing.num_experts, routing.top_k);
  for (int rank = 0; rank < routing.num_ranks(); ++rank) {
    const auto& ids = routing.topk[static_cast<std::size_t>(rank)];
    text += fmt::format("rank {} ({} tokens):", rank, routing.num_tokens(rank));
    for (std::int64_t t = 0; t < std::min(routing.num_tokens(rank), kShown); ++t)
      text += fmt::format(" [{}]", fmt::join(ids.begin() + t * routing.top_k,
                                             ids.begin() + (t + 1) * routing.top_k, " "));
    text += routing.num_tokens(rank) > kShown ? " ...\n" : "\n";
  }
  return text;
}

}  // namespace ferry::support
