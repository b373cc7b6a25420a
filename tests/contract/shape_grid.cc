// A grid of shapes: every combination of ranks, top-k and hidden size, with layouts, types,
// patterns and options varied along the way. Values are exact, so the comparison is to the bit.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStep = 11;  // shares no factor with the lists below either
#else
constexpr std::size_t kStep = 1;
#endif
constexpr int kRanks[] = {1, 2, 3, 4, 7, 8};
constexpr int kTopk[] = {1, 2, 8, 16, 32};
constexpr std::int64_t kHidden[] = {16, 48, 128, 1536, 2880, 4096, 7168};
constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4m3};
constexpr support::Pattern kPatterns[] = {
    support::Pattern::kUniform,       support::Pattern::kSomeMasked,
    support::Pattern::kOneExpert,     support::Pattern::kSameExperts,
    support::Pattern::kAllMasked,     support::Pattern::kOneRankActive,
    support::Pattern::kWithDuplicates};

template <typename Value, std::size_t Size>
Value pick(const Value (&values)[Size], std::size_t index) {
  return values[index % Size];
}

// Number `i` of 210: 6, 5 and 7 have no common factor, so each triple comes exactly once. The other
// choices step at other rates.
Scenario grid_scenario(std::size_t i) {
  const int num_ranks = pick(kRanks, i);
  const int top_k = pick(kTopk, i);
  const std::int64_t hidden = pick(kHidden, i);
  const std::int64_t max_tokens = hidden >= 1536 ? 2 + static_cast<std::int64_t>(i % 3) : 11;
  support::RandomRouting routing;
  // Sometimes no multiple of the ranks, sometimes barely enough.
  routing.num_experts = std::max(top_k, num_ranks) + static_cast<int>(i / 7 % 3) * 5;
  routing.top_k = top_k;
  routing.num_tokens = support::uneven_tokens(
      num_ranks, max_tokens, i % 4 == 0 ? static_cast<int>(i / 4) % num_ranks : -1);
  routing.pattern = pick(kPatterns, i / 3);

  Scenario scenario;
  scenario.routing = support::random_routing(routing, i);
  scenario.duplicates = routing.pattern == support::Pattern::kWithDuplicates ? Duplicates::kAccept
                                                                             : Duplicates::kRefuse;
  scenario.layout = pick(kLayouts, i / 2);
  // Padded has R * max_tokens places per expert, which repeats may exceed.
  if (scenario.duplicates == Duplicates::kAccept && scenario.layout == Layout::kPadded)
    scenario.layout = Layout::kByExpert;
  scenario.hidden = hidden;
  scenario.max_tokens = max_tokens;
  scenario.dtype = pick(kTypes, i / 5);
  scenario.sum_dtype = scenario.dtype == DType::kFp8E4m3 ? DType::kBf16 : scenario.dtype;
  scenario.num_scales = scenario.dtype == DType::kFp8E4m3 ? (hidden + 127) / 128 : 0;
  scenario.topk_dtype = i % 3 == 0 ? DType::kInt32 : DType::kInt64;
  scenario.alignment = scenario.layout == Layout::kByExpert && i % 3 == 1 ? 8 : 1;
  scenario.gaps = i % 5 == 0 ? Gaps::kZeroed : Gaps::kUndefined;
  scenario.is_weighted = scenario.layout != Layout::kByRank && i % 2 == 0;
  scenario.num_biases = static_cast<int>(i / 11 % 3);
  scenario.y_in_arena = i % 7 < 3;
  scenario.returns_weights = i % 6 == 1;
  scenario.row_order = i % 9 < 4 ? RowOrder::kHighestKAscending : RowOrder::kRankAscending;
  scenario.seed = i;
  return scenario;
}

}  // namespace

TEST_P(ShapeGrid, CarriesEveryShape) {
  for (std::size_t i = 0; i < 210; i += kStep) {
    check(grid_scenario(i));
    ASSERT_FALSE(HasFailure()) << "grid number " << i;
  }
}

}  // namespace ferry::contract
