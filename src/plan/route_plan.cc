#include "plan/route_plan.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ferry::plan {
namespace {

std::size_t index_of(std::int32_t value) { return static_cast<std::size_t>(value); }

std::int64_t align_up(std::int64_t rows, std::int64_t alignment) {
  return (rows + alignment - 1) / alignment * alignment;
}

void check_counts_size(std::span<const SourceCounts> counts, const OwnerMap& owners) {
  FERRY_CHECK_INTERNAL(counts.size() == owners.experts_of.size(),
                       "counts of {} sources in a group of {}", counts.size(), owners.num_ranks());
}

// Selections of each expert by the given sources, [E]. Walks each source's counts once, in order:
// at R = 2048 and E = 4096 they are 32 MiB.
std::vector<std::int64_t> sum_per_expert(std::span<const SourceCounts> sources,
                                         std::vector<std::int64_t> sums) {
  for (const SourceCounts& source : sources) {
    const std::int32_t* counts = source.per_expert.data();
    for (std::size_t expert = 0; expert < sums.size(); ++expert) sums[expert] += counts[expert];
  }
  return sums;
}

// Tokens for each destination from the given sources, [R].
std::vector<std::int64_t> sum_per_rank(std::span<const SourceCounts> sources,
                                       std::size_t num_ranks) {
  std::vector<std::int64_t> sums(num_ranks, 0);
  for (const SourceCounts& source : sources) {
    const std::int32_t* counts = source.per_rank.data();
    for (std::size_t rank = 0; rank < num_ranks; ++rank) sums[rank] += counts[rank];
  }
  return sums;
}

std::int64_t padded_rows_per_expert(const OwnerMap& owners, const RouteShape& shape) {
  return owners.num_ranks() * shape.max_tokens;
}

// Only accepted duplicates can overfill an expert's fixed region. All ranks see the same counts, so
// all of them throw the same error.
void check_padded_fits(std::span<const std::int64_t> expert_totals,
                       const OwnerMap& owners,
                       const RouteShape& shape) {
  const std::int64_t room = padded_rows_per_expert(owners, shape);
  for (std::size_t expert = 0; expert < expert_totals.size(); ++expert) {
    FERRY_CHECK(expert_totals[expert] <= room, ErrorCode::kInvalidArgument,
                "expert {} is selected {} times by this batch, the padded layout holds {} ranks x "
                "{} max_tokens = {} rows per expert",
                expert, expert_totals[expert], owners.num_ranks(), shape.max_tokens, room);
  }
}

void fill_by_rank(ReceivePlan& plan, const RouteShape& shape) {
  for (std::size_t source = 0; source < plan.tokens_from_rank.size(); ++source) {
    const std::int64_t end = plan.source_offsets[source] + plan.tokens_from_rank[source];
    plan.source_offsets[source + 1] = std::min(end, shape.row_cap);
    plan.rows_from_rank[source] = plan.source_offsets[source + 1] - plan.source_offsets[source];
  }
  plan.num_rows = plan.source_offsets.back();
  for (std::size_t local = 0; local < plan.expert_counts.size(); ++local) {
    plan.expert_offsets[local + 1] = plan.expert_offsets[local] + plan.expert_counts[local];
  }
}

// Adds the rows of each source that stay below the cap; returns how many those are.
std::int64_t deliver_expert(ReceivePlan& plan,
                            std::span<const SourceCounts> counts,
                            std::size_t expert,
                            std::int64_t room) {
  std::int64_t delivered = 0;
  for (std::size_t source = 0; source < counts.size(); ++source) {
    const std::int64_t rows =
        std::min<std::int64_t>(counts[source].per_expert[expert], room - delivered);
    plan.rows_from_rank[source] += rows;
    delivered += rows;
  }
  return delivered;
}

}  // namespace

ReceivePlan plan_receive(std::span<const SourceCounts> counts,
                         const OwnerMap& owners,
                         const RouteShape& shape,
                         int destination) {
  check_counts_size(counts, owners);
  const std::vector<std::int32_t>& experts = owners.experts_of[index_of(destination)];
  ReceivePlan plan;
  plan.expert_counts.assign(experts.size(), 0);
  plan.aligned_expert_counts.assign(experts.size(), 0);
  plan.expert_offsets.assign(experts.size() + 1, 0);
  plan.source_offsets.assign(counts.size() + 1, 0);
  plan.tokens_from_rank.assign(counts.size(), 0);
  plan.rows_from_rank.assign(counts.size(), 0);
  for (std::size_t source = 0; source < counts.size(); ++source) {
    plan.tokens_from_rank[source] = counts[source].per_rank[index_of(destination)];
    for (std::size_t local = 0; local < experts.size(); ++local) {
      plan.expert_counts[local] += counts[source].per_expert[index_of(experts[local])];
    }
  }
  for (std::size_t local = 0; local < experts.size(); ++local) {
    plan.aligned_expert_counts[local] = align_up(plan.expert_counts[local], shape.expert_alignment);
  }
  switch (shape.layout) {
    case Layout::kByRank: fill_by_rank(plan, shape); break;
    case Layout::kByExpert:
      for (std::size_t local = 0; local < experts.size(); ++local) {
        const std::int64_t start = plan.expert_offsets[local];
        const std::int64_t end = std::min(start + plan.aligned_expert_counts[local], shape.row_cap);
        plan.expert_counts[local] =
            deliver_expert(plan, counts, index_of(experts[local]), end - start);
        plan.aligned_expert_counts[local] = end - start;
        plan.expert_offsets[local + 1] = end;
      }
      plan.num_rows = plan.expert_offsets.back();
      break;
    case Layout::kPadded:
      for (std::size_t local = 0; local < experts.size(); ++local) {
        const std::int64_t room = padded_rows_per_expert(owners, shape);
        deliver_expert(plan, counts, index_of(experts[local]), room);
        plan.expert_offsets[local + 1] = plan.expert_offsets[local] + room;
      }
      plan.num_rows = plan.expert_offsets.back();
      break;
  }
  return plan;
}

std::vector<std::int64_t> plan_num_rows(std::span<const SourceCounts> counts,
                                        const OwnerMap& owners,
                                        const RouteShape& shape) {
  check_counts_size(counts, owners);
  std::vector<std::int64_t> num_rows;
  if (shape.layout == Layout::kByRank) {
    num_rows = sum_per_rank(counts, counts.size());
  } else {
    num_rows.assign(counts.size(), 0);
    const std::vector<std::int64_t> totals =
        sum_per_expert(counts, std::vector<std::int64_t>(owners.rank_of.size(), 0));
    const bool is_padded = shape.layout == Layout::kPadded;
    if (is_padded) check_padded_fits(totals, owners, shape);
    for (std::size_t expert = 0; expert < totals.size(); ++expert) {
      num_rows[index_of(owners.rank_of[expert])] +=
          is_padded ? padded_rows_per_expert(owners, shape)
                    : align_up(totals[expert], shape.expert_alignment);
    }
    if (is_padded) return num_rows;
  }
  for (std::int64_t& rows : num_rows) rows = std::min(rows, shape.row_cap);
  return num_rows;
}

std::vector<std::int64_t> plan_bases(std::span<const SourceCounts> counts,
                                     const OwnerMap& owners,
                                     const RouteShape& shape,
                                     int source) {
  check_counts_size(counts, owners);
  const auto earlier = counts.first(index_of(source));
  if (shape.layout == Layout::kByRank) return sum_per_rank(earlier, counts.size());

  std::vector<std::int64_t> bases =
      sum_per_expert(earlier, std::vector<std::int64_t>(owners.rank_of.size(), 0));
  const std::vector<std::int64_t> totals = sum_per_expert(counts.subspan(index_of(source)), bases);
  if (shape.layout == Layout::kPadded) check_padded_fits(totals, owners, shape);
  for (const std::vector<std::int32_t>& experts : owners.experts_of) {
    std::int64_t start = 0;
    for (const std::int32_t expert : experts) {
      bases[index_of(expert)] += start;
      start += shape.layout == Layout::kPadded
                   ? padded_rows_per_expert(owners, shape)
                   : align_up(totals[index_of(expert)], shape.expert_alignment);
    }
  }
  return bases;
}

}  // namespace ferry::plan
