#include <array>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "plan/route_plan.hpp"

namespace ferry::plan {
namespace {

constexpr int kMaxTopk = 32;     // a token's columns fit one 32-bit mask
constexpr int kMaxRanks = 2048;  // a token's destinations fit 32 words of 64 bits

std::size_t index_of(std::int32_t value) { return static_cast<std::size_t>(value); }

void check_topk_size(std::span<const std::int32_t> topk, int top_k, const OwnerMap& owners) {
  FERRY_CHECK_INTERNAL(top_k >= 1 && top_k <= kMaxTopk && topk.size() % index_of(top_k) == 0,
                       "{} topk ids are not whole tokens of top_k {}", topk.size(), top_k);
  FERRY_CHECK_INTERNAL(owners.num_ranks() <= kMaxRanks, "{} ranks exceed {}", owners.num_ranks(),
                       kMaxRanks);
}

// The distinct destinations of one token, ascending, with the columns that lead to each: a
// two-level bit set, so that a token costs O(K) however many ranks there are.
class TokenDestinations {
 public:
  explicit TokenDestinations(int num_ranks) : columns_of_(index_of(num_ranks), 0) {}

  void add(std::int32_t rank, int k) {
    const auto word = static_cast<unsigned>(rank) / 64;
    columns_of_[index_of(rank)] |= std::uint32_t{1} << k;
    words_[word] |= std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
    used_words_ |= std::uint32_t{1} << word;
  }

  // visit(rank, columns): bit k of columns is set where column k's expert lives on that rank.
  // Leaves the set empty.
  template <typename Visit>
  void drain(Visit visit) {
    for (; used_words_ != 0; used_words_ &= used_words_ - 1) {
      const auto word = static_cast<std::size_t>(std::countr_zero(used_words_));
      for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
        const std::size_t rank = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        visit(rank, std::exchange(columns_of_[rank], 0));
      }
      words_[word] = 0;
    }
  }

 private:
  std::vector<std::uint32_t> columns_of_;  // [R]
  std::array<std::uint64_t, kMaxRanks / 64> words_{};
  std::uint32_t used_words_ = 0;
};

}  // namespace

void count_topk(std::span<const std::int32_t> topk,
                int top_k,
                const OwnerMap& owners,
                std::span<std::int32_t> per_expert,
                std::span<std::int32_t> per_rank) {
  check_topk_size(topk, top_k, owners);
  FERRY_CHECK_INTERNAL(
      per_expert.size() == owners.rank_of.size() && per_rank.size() == owners.experts_of.size(),
      "counts for {} experts and {} ranks, expected {} and {}", per_expert.size(), per_rank.size(),
      owners.num_experts(), owners.num_ranks());
  std::ranges::fill(per_expert, 0);
  std::ranges::fill(per_rank, 0);
  // The first selection, counted from 1, of the last token that each rank was counted for.
  std::vector<std::size_t> counted_at(per_rank.size(), 0);
  const auto width = index_of(top_k);
  for (std::size_t first = 0; first < topk.size(); first += width) {
    for (std::size_t k = 0; k < width; ++k) {
      const std::int32_t expert = topk[first + k];
      if (expert < 0) continue;
      const std::size_t rank = index_of(owners.rank_of[index_of(expert)]);
      ++per_expert[index_of(expert)];
      per_rank[rank] += counted_at[rank] != first + 1 ? 1 : 0;
      counted_at[rank] = first + 1;
    }
  }
}

SendPlan plan_send(std::span<const std::int32_t> topk,
                   const OwnerMap& owners,
                   const RouteShape& shape,
                   std::span<const std::int64_t> bases) {
  check_topk_size(topk, shape.top_k, owners);
  const bool is_by_rank = shape.layout == Layout::kByRank;
  const auto width = index_of(shape.top_k);
  const std::size_t num_tokens = topk.size() / width;
  FERRY_CHECK_INTERNAL(
      bases.size() == (is_by_rank ? owners.experts_of.size() : owners.rank_of.size()),
      "{} base rows do not fit {} ranks and {} experts", bases.size(), owners.num_ranks(),
      owners.num_experts());
  const std::int64_t row_cap = shape.layout == Layout::kPadded ? INT64_MAX : shape.row_cap;

  SendPlan plan;
  plan.token_begin.reserve(num_tokens + 1);
  plan.token_begin.push_back(0);
  plan.entries.reserve(num_tokens *
                       index_of(slots_per_token(shape.layout, owners.num_ranks(), shape.top_k)));
  std::vector<std::int64_t> next_row(bases.begin(), bases.end());
  TokenDestinations destinations(owners.num_ranks());
  const auto add_entry = [&](std::size_t rank, std::int64_t row, int slot, int k) {
    if (row >= row_cap) {
      ++plan.num_dropped;
      return;
    }
    plan.entries.push_back({row, static_cast<std::int32_t>(rank), static_cast<std::int16_t>(slot),
                            static_cast<std::int16_t>(k)});
  };
  for (std::size_t token = 0; token < num_tokens; ++token) {
    const std::int32_t* ids = topk.data() + token * width;
    for (std::size_t k = 0; k < width; ++k) {
      if (ids[k] >= 0) destinations.add(owners.rank_of[index_of(ids[k])], static_cast<int>(k));
    }
    int slot = 0;
    destinations.drain([&](std::size_t rank, std::uint32_t columns) {
      if (is_by_rank) {
        add_entry(rank, next_row[rank]++, slot++, std::bit_width(columns) - 1);
        return;
      }
      for (; columns != 0; columns &= columns - 1) {
        const int k = std::countr_zero(columns);
        add_entry(rank, next_row[index_of(ids[k])]++, k, k);
      }
    });
    plan.token_begin.push_back(static_cast<std::int64_t>(plan.entries.size()));
  }
  return plan;
}

}  // namespace ferry::plan
