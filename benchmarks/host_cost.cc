// Host time of one dispatch along a cached route, where almost nothing moves: one rank, one token of
// 16 floats. The C++ side of host_cost.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "ferry/ferry.hpp"

int main() {
  constexpr int kCalls = 200;
  const ferry::Group group = ferry::Group::self();
  ferry::Exchange exchange(group, {.num_experts = 4,
                                   .top_k = 2,
                                   .hidden = 16,
                                   .max_tokens = 8,
                                   .dtype = ferry::DType::kFp32,
                                   .num_threads = 1});
  const std::vector<std::int64_t> topk{0, 1};
  const std::vector<float> x(16, 1.0F);
  const std::vector<float> weights{0.5F, 0.5F};
  const ferry::Route route =
      exchange.route(ferry::TensorView::dense(topk.data(), ferry::DType::kInt64, {1, 2}));
  const auto x_view = ferry::TensorView::dense(x.data(), ferry::DType::kFp32, {1, 16});
  const auto weights_view = ferry::TensorView::dense(weights.data(), ferry::DType::kFp32, {1, 2});

  double best_us = 1e9;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) {
      const ferry::Delivery delivery =
          exchange.dispatch(route, x_view, {.topk_weights = weights_view});
      static_cast<void>(delivery.tokens());
    }
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    best_us = std::min(best_us, spent.count() / kCalls);
  }
  std::printf("%.2f\n", best_us);
}
