#pragma once

#include "cuda/device_state.hpp"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

// What only the receiver knows of its delivery: experts of rows, ids of unused rows, gaps. Done by
// the blocks of its own move before they send.
namespace ferry::cuda {

// Rows [first, end) of a delivery.
struct RowRange {
  std::int64_t first;
  std::int64_t end;
};

// Whole grid: bytes of one value.
__device__ inline void fill_bytes(std::byte* start, std::int64_t bytes, unsigned char value) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  if (bytes % 16 != 0 || reinterpret_cast<std::uint64_t>(start) % 16 != 0) {
    for (std::int64_t i = thread; i < bytes; i += step)
      *reinterpret_cast<unsigned char*>(start + i) = value;
    return;
  }
  const std::uint32_t word = value * 0x01010101U;
  for (std::int64_t i = thread; i < bytes / 16; i += step)
    reinterpret_cast<uint4*>(start)[i] = make_uint4(word, word, word, word);
}

__device__ inline void zero_rows(const CompleteView& view, RowRange rows) {
  if (view.zeroes_gaps == 0 || rows.first >= rows.end) return;
  const std::int64_t count = rows.end - rows.first;
  fill_bytes(view.rows + rows.first * view.row_bytes, count * view.row_bytes, 0);
  fill_bytes(view.scales + rows.first * view.scale_bytes, count * view.scale_bytes, 0);
  fill_bytes(view.weights + rows.first * view.weight_bytes, count * view.weight_bytes, 0);
}

// Whole grid. It touches no row that a peer writes, so it needs no gate of its own.
__device__ inline void complete(const ExchangeView& exchange,
                                const RouteView& route,
                                const CompleteView& view) {
  if (view.num_output_rows == 0) return;
  if (static_cast<Layout>(route.layout) == Layout::kByRank) {
    const RowRange unused{route.counts[0], view.num_output_rows};
    const std::int64_t id_bytes = exchange.top_k * (view.is_topk_int64 != 0 ? 8 : 4);
    if (unused.first < unused.end)
      fill_bytes(view.topk_idx + unused.first * id_bytes, (unused.end - unused.first) * id_bytes,
                 0xFF);
    return zero_rows(view, unused);
  }
  const std::int64_t* counts = route.counts + 1;
  const std::int64_t* offsets = counts + 2 * route.num_local;
  // Of expert e: from its start to the next one's, the last one's to the end of the delivery.
  const auto end_of = [&](int expert) {
    return expert + 1 < route.num_local ? offsets[expert + 1] : view.num_output_rows;
  };
  for (int expert = static_cast<int>(blockIdx.x); expert < route.num_local;
       expert += static_cast<int>(gridDim.x)) {
    const std::int64_t real_end = offsets[expert] + counts[expert];
    for (std::int64_t row = offsets[expert] + threadIdx.x; row < end_of(expert); row += blockDim.x)
      view.row_expert[row] = row < real_end ? expert : -1;
  }
  for (int expert = 0; expert < route.num_local; ++expert)
    zero_rows(view, {offsets[expert] + counts[expert], end_of(expert)});
}

}  // namespace ferry::cuda
