// One mixture-of-experts step: tokens travel to their experts and the results come back.
//
//   ./exchange                  four ranks, each a thread of this process
//   mpirun -n 4 ./exchange      one rank per process; srun and torchrun work likewise

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "ferry/ferry.hpp"

namespace {

constexpr int kExpertsPerRank = 2;
constexpr int kTopK = 2;     // experts per token
constexpr int kHidden = 64;  // values per token
constexpr int kTokens = 5;   // per rank; ranks may differ

// Our "expert" e multiplies its tokens by e + 1. A real one is a small neural network.
float factor_of(int expert) { return static_cast<float>(expert + 1); }

// What each rank does. Returns whether its result is right.
bool run_rank(const ferry::Group& group) {
  const int rank = group.rank();
  const int num_experts = kExpertsPerRank * group.size();

  // The same on every rank. Rows arrive grouped by expert, ready to be computed on.
  ferry::Exchange exchange(group, {.num_experts = num_experts,
                                   .top_k = kTopK,
                                   .hidden = kHidden,
                                   .max_tokens = kTokens,
                                   .dtype = ferry::DType::kFp32,
                                   .layout = ferry::Layout::kByExpert});

  // The router's choice: the experts of each token and how much each counts.
  std::vector<std::int64_t> topk_idx;
  std::vector<float> topk_weights;
  std::vector<float> x;
  for (int token = 0; token < kTokens; ++token) {
    const int first = (rank + token) % num_experts;
    topk_idx.insert(topk_idx.end(), {first, (first + 1) % num_experts});
    topk_weights.insert(topk_weights.end(), {0.75f, 0.25f});
    x.insert(x.end(), kHidden, static_cast<float>(100 * rank + token));
  }
  std::vector<float> out(x.size());

  // Views of our memory; the library owns no tensor type.
  using ferry::TensorView;
  const auto ids = TensorView::dense(topk_idx.data(), ferry::DType::kInt64, {kTokens, kTopK});
  const auto weights =
      TensorView::dense(topk_weights.data(), ferry::DType::kFp32, {kTokens, kTopK});
  const auto x_view = TensorView::dense(x.data(), ferry::DType::kFp32, {kTokens, kHidden});
  const auto out_view = TensorView::dense(out.data(), ferry::DType::kFp32, {kTokens, kHidden});

  // Plan once for this batch, send the tokens, compute in place, bring the weighted sums back.
  const ferry::Route route = exchange.route(ids);
  const ferry::Delivery in = exchange.dispatch(route, x_view);
  const auto* first_row = static_cast<const std::int64_t*>(in.expert_offsets().data);
  for (int local = 0; local < kExpertsPerRank; ++local) {
    const auto num_rows = route.expert_counts()[static_cast<std::size_t>(local)];
    auto* values = static_cast<float*>(in.tokens().data) + first_row[local] * kHidden;
    for (float& value : std::span(values, static_cast<std::size_t>(num_rows * kHidden)))
      value *= factor_of(rank * kExpertsPerRank + local);
  }
  exchange.combine(route, in.tokens(), out_view, {.topk_weights = weights});

  // All numbers here are exact in fp32, so the check is for equality.
  int num_wrong = 0;
  for (std::size_t token = 0; token < kTokens; ++token) {
    float factor = 0;
    for (std::size_t k = token * kTopK; k < (token + 1) * kTopK; ++k)
      factor += topk_weights[k] * factor_of(static_cast<int>(topk_idx[k]));
    for (std::size_t at = token * kHidden; at < (token + 1) * kHidden; ++at)
      num_wrong += out[at] != factor * x[at];
  }
  std::printf("rank %d of %d: sent %d tokens, computed %lld rows, %s\n", rank, group.size(),
              kTokens, static_cast<long long>(route.num_recv_rows()),
              num_wrong == 0 ? "result correct" : "result WRONG");
  return num_wrong == 0;
}

}  // namespace

int main() try {
  if (ferry::Group::is_launched())
    return run_rank(ferry::Group::from_env()) ? EXIT_SUCCESS : EXIT_FAILURE;

  std::vector<char> is_right(4);
  ferry::Group::run_threads(4, [&](ferry::Group group) {
    is_right[static_cast<std::size_t>(group.rank())] = run_rank(group);
  });
  for (const char right : is_right)
    if (!right) return EXIT_FAILURE;
  return EXIT_SUCCESS;
} catch (const ferry::Error& error) {
  std::fprintf(stderr, "%s: %s\n", ferry::error_code_name(error.code()), error.what());
  return EXIT_FAILURE;
}
