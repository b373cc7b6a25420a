// Planning on one core: what route() computes between the caller's ids and the first row. Time per
// selection stays the same when T or K grows.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/route_plan.hpp"
#include "plan/topk.hpp"

namespace ferry::plan {
namespace {

// Distinct experts per token, uniform.
std::vector<std::int64_t> random_topk(std::int64_t num_tokens, int top_k, int num_experts) {
  std::mt19937 random(42);
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> experts(static_cast<std::size_t>(num_experts));
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<std::int64_t>(i);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(top_k); ++k) {
      std::swap(experts[k], experts[k + random() % (experts.size() - k)]);
      ids.push_back(experts[k]);
    }
  }
  return ids;
}

// Arguments: T, K, E, R.
void plan_route(benchmark::State& state, Layout layout) {
  const std::int64_t num_tokens = state.range(0);
  const auto top_k = static_cast<int>(state.range(1));
  const auto num_experts = static_cast<int>(state.range(2));
  const auto num_ranks = static_cast<int>(state.range(3));
  const std::vector<std::int64_t> ids = random_topk(num_tokens, top_k, num_experts);
  const OwnerMap owners = make_block_owner_map(num_experts, num_ranks);
  const RouteShape shape{.layout = layout, .top_k = top_k, .max_tokens = num_tokens};
  std::vector<std::int32_t> per_expert(owners.rank_of.size());
  std::vector<std::int32_t> per_rank(owners.experts_of.size());
  // Every source has this rank's counts: the same work as with real ones.
  const std::vector<SourceCounts> counts(owners.experts_of.size(), {per_expert, per_rank});
  std::vector<std::int32_t> topk(ids.size());
  for (auto _ : state) {
    const auto fault =
        read_topk({ids.data(), true, num_tokens, top_k, top_k}, num_experts, false, topk);
    if (fault) state.SkipWithError("the ids are valid");
    count_topk(topk, top_k, owners, per_expert, per_rank);
    const SendPlan plan =
        plan_send(topk, owners, shape, plan_bases(counts, owners, shape, num_ranks / 2));
    benchmark::DoNotOptimize(plan.entries.data());
  }
  state.counters["selections"] = benchmark::Counter(static_cast<double>(num_tokens * top_k),
                                                    benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Unit(benchmark::kMicrosecond)->ArgNames({"T", "K", "E", "R"});
  benchmark->Args({4096, 8, 256, 8});  // the target: below 1 ms
  for (const int num_tokens : {1024, 2048, 8192, 16384}) benchmark->Args({num_tokens, 8, 256, 8});
  for (const int top_k : {1, 2, 4, 16, 32}) benchmark->Args({4096, top_k, 256, 8});
  benchmark->Args({4096, 8, 256, 64});
  benchmark->Args({4096, 32, 4096, 2048});
}
BENCHMARK_CAPTURE(plan_route, by_rank, Layout::kByRank)->Apply(shapes);
BENCHMARK_CAPTURE(plan_route, by_expert, Layout::kByExpert)->Apply(shapes);

}  // namespace
}  // namespace ferry::plan
