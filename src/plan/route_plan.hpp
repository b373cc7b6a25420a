#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ferry/exchange.hpp"
#include "plan/owner_map.hpp"

namespace ferry::plan {

// What the slots of a route depend on besides the ids themselves; the same on every rank.
struct RouteShape {
  Layout layout = Layout::kByRank;
  int top_k = 0;
  std::int64_t max_tokens = 0;
  std::int64_t expert_alignment = 1;
  // Delivered rows at or beyond this are dropped (kPadded: never). Where overflow is an error,
  // callers compare plan_num_rows() of the shape without a cap with their limit and refuse.
  std::int64_t row_cap = INT64_MAX;
};

// One source's counts as they travel: selections per expert [E], then tokens per destination rank
// [R], a token counted once per rank that holds any of its experts.
struct SourceCounts {
  std::span<const std::int32_t> per_expert;  // [E]
  std::span<const std::int32_t> per_rank;    // [R]
};

// O(T*K + R + E). Both outputs are overwritten. topk: dense, valid ids or -1.
void count_topk(std::span<const std::int32_t> topk,
                int top_k,
                const OwnerMap& owners,
                std::span<std::int32_t> per_expert,
                std::span<std::int32_t> per_rank);

// What one destination receives. Under a row_cap: num_rows, rows_from_rank, and in kByExpert the
// counts and offsets of experts, in kByRank source_offsets, hold only rows that are delivered;
// tokens_from_rank, and in kByRank the counts of experts, stay those of the batch.
struct ReceivePlan {
  std::int64_t num_rows = 0;  // gaps of kByExpert included; kPadded: E_l * R * max_tokens
  std::vector<std::int64_t> expert_counts;          // [E_l], real
  std::vector<std::int64_t> aligned_expert_counts;  // [E_l]
  // [E_l + 1], first row of each expert. kByExpert: aligned starts, last = num_rows. kPadded: e * R
  // * max_tokens. kByRank: prefix sums of expert_counts (no rows stand there; a count aid).
  std::vector<std::int64_t> expert_offsets;
  std::vector<std::int64_t> source_offsets;    // [R + 1], kByRank: first row of each source
  std::vector<std::int64_t> tokens_from_rank;  // [R], each token once
  std::vector<std::int64_t> rows_from_rank;    // [R], rows of the layout, no gaps
};
[[nodiscard]] ReceivePlan plan_receive(std::span<const SourceCounts> counts,
                                       const OwnerMap& owners,
                                       const RouteShape& shape,
                                       int destination);

// Rows (gaps included) that each destination receives, [R]; the num_rows of plan_receive without
// its vectors. kPadded: throws kInvalidArgument, the same on all ranks, when accepted duplicates
// overfill an expert's R * max_tokens rows; so does plan_bases.
[[nodiscard]] std::vector<std::int64_t> plan_num_rows(std::span<const SourceCounts> counts,
                                                      const OwnerMap& owners,
                                                      const RouteShape& shape);

// The row at which `source`'s first row lands: per destination rank [R] in kByRank, else per expert
// [E].
[[nodiscard]] std::vector<std::int64_t> plan_bases(std::span<const SourceCounts> counts,
                                                   const OwnerMap& owners,
                                                   const RouteShape& shape,
                                                   int source);

// One row that a token sends.
struct SendEntry {
  std::int64_t row;   // at the destination
  std::int32_t rank;  // destination
  std::int16_t slot;  // kByRank: position among the token's destinations, dropped ones too; else k
  std::int16_t k;     // kByRank: highest k that the row serves; else k
};
static_assert(sizeof(SendEntry) == 16);

// The rows of all tokens: entries[token_begin[t] .. token_begin[t + 1]), sorted by (rank, k).
struct SendPlan {
  std::vector<std::int64_t> token_begin;  // [T + 1]
  std::vector<SendEntry> entries;
  std::int64_t num_dropped = 0;  // rows beyond shape.row_cap: they have no entry

  [[nodiscard]] std::span<const SendEntry> of_token(std::int64_t token) const {
    const auto index = static_cast<std::size_t>(token);
    return std::span(entries).subspan(
        static_cast<std::size_t>(token_begin[index]),
        static_cast<std::size_t>(token_begin[index + 1] - token_begin[index]));
  }
};
// O(T*K + R + E), however many ranks a token could reach.
[[nodiscard]] SendPlan plan_send(std::span<const std::int32_t> topk,
                                 const OwnerMap& owners,
                                 const RouteShape& shape,
                                 std::span<const std::int64_t> bases);

// Rows of the worst batch for a rank with `num_local` experts: kByRank R * max_tokens; kByExpert
// R * max_tokens * min(K, E_l) plus the largest alignment gaps; kPadded E_l * R * max_tokens.
// accept_duplicates raises min(K, E_l) to K. A rank without experts receives nothing. At most
// row_cap, but for kPadded. Throws kInvalidArgument on int64 overflow.
[[nodiscard]] std::int64_t worst_case_rows(const RouteShape& shape,
                                           int num_ranks,
                                           int num_local,
                                           bool accept_duplicates);

// Staging slots per token for push combine: min(R, K) in kByRank, else K.
[[nodiscard]] int slots_per_token(Layout layout, int num_ranks, int top_k);

}  // namespace ferry::plan
