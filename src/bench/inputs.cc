#include "bench/inputs.hpp"

#include <algorithm>
#include <span>

#include "bench/host_views.hpp"

namespace ferry::bench {

namespace {

template <typename Element>
std::span<Element> elements(const TensorView& view) {
  return {static_cast<Element*>(view.data), static_cast<std::size_t>(view.num_elements())};
}

}  // namespace

Inputs::Inputs(BenchDevice& device, const Batch& batch, int rank)
    : device_(device.device()),
      num_tokens_(batch.routing.num_tokens(rank)),
      top_k_(batch.routing.top_k),
      hidden_(batch.hidden),
      x_(device.allocate(num_tokens_ * hidden_ * 2)),
      out_(device.allocate(num_tokens_ * hidden_ * 2)),
      ids_(device.allocate(num_tokens_ * top_k_ * 8)),
      weights_(device.allocate(num_tokens_ * top_k_ * 4)) {
  HostViews views(device);
  std::ranges::copy(batch.routing.topk[static_cast<std::size_t>(rank)],
                    elements<std::int64_t>(views.open(topk_idx())).begin());
  const auto weights = elements<float>(views.open(topk_weights()));
  const auto x = elements<std::uint16_t>(views.open(this->x()));
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    const auto hidden = static_cast<std::size_t>(hidden_);
    fill_row(batch, rank, token, x.subspan(static_cast<std::size_t>(token) * hidden, hidden));
    for (int k = 0; k < top_k_; ++k)
      weights[static_cast<std::size_t>(token * top_k_ + k)] = weight_at(batch, rank, token, k);
  }
  for (const TensorView& tensor : {this->x(), topk_idx(), topk_weights()}) views.write_back(tensor);
}

}  // namespace ferry::bench
