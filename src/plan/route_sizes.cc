#include <algorithm>

#include "base/checked.hpp"
#include "plan/route_plan.hpp"

namespace ferry::plan {
namespace {

constexpr const char* kWhat = "worst-case rows";

// Most rows, gaps included, of `num_rows` real ones over `num_experts`: every used expert wastes
// alignment - 1 rows where the sum can be made to fit, and the total is a multiple of the
// alignment.
std::int64_t aligned_rows(std::int64_t num_rows, std::int64_t num_experts, std::int64_t alignment) {
  const std::int64_t num_used = std::min(num_experts, num_rows);
  const std::int64_t gaps = checked_multiply(kWhat, num_used, alignment - 1);
  return checked_add(kWhat, num_rows, gaps) / alignment * alignment;
}

}  // namespace

std::int64_t worst_case_rows(const RouteShape& shape,
                             int num_ranks,
                             int num_local,
                             bool accept_duplicates) {
  if (num_local == 0) return 0;
  const std::int64_t num_tokens = checked_multiply(kWhat, num_ranks, shape.max_tokens);
  switch (shape.layout) {
    case Layout::kByRank: return std::min(num_tokens, shape.row_cap);
    case Layout::kPadded: return checked_multiply(kWhat, num_local, num_tokens);
    case Layout::kByExpert: break;
  }
  const int rows_per_token = accept_duplicates ? shape.top_k : std::min(shape.top_k, num_local);
  const std::int64_t num_rows = checked_multiply(kWhat, num_tokens, rows_per_token);
  std::int64_t worst = aligned_rows(num_rows, num_local, shape.expert_alignment);
  if (!accept_duplicates) {
    // An expert gets a token at most once, which is tighter where a rank has few experts.
    const std::int64_t per_expert = aligned_rows(num_tokens, 1, shape.expert_alignment);
    worst = std::min(worst, checked_multiply(kWhat, num_local, per_expert));
  }
  return std::min(worst, shape.row_cap);
}

int slots_per_token(Layout layout, int num_ranks, int top_k) {
  return layout == Layout::kByRank ? std::min(num_ranks, top_k) : top_k;
}

}  // namespace ferry::plan
