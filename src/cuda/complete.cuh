#pragma once

#include "cuda/device_state.hpp"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

// What only the receiver knows of its delivery: counts, experts of rows, ids of unused rows, gaps.
// Done by the blocks of its own move before they send.
namespace ferry::cuda {

// Rows [first, end) of a delivery.
struct RowRange {
  std::int64_t first;
  std::int64_t end;
};

// Whole grid: bytes of one value.
static __device__ __noinline__ void fill_bytes(std::byte* start,
                                               std::int64_t bytes,
                                               unsigned char value) {
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

static __device__ __noinline__ void zero_rows(const CompleteView& view, RowRange rows) {
  if (rows.first >= rows.end) return;
  const std::int64_t count = rows.end - rows.first;
  fill_bytes(view.rows + rows.first * view.row_bytes, count * view.row_bytes, 0);
  fill_bytes(view.scales + rows.first * view.scale_bytes, count * view.scale_bytes, 0);
  fill_bytes(view.weights + rows.first * view.weight_bytes, count * view.weight_bytes, 0);
}

// The delivery's counts, which this rank alone writes.
__device__ inline void write_counts(const ExchangeView& exchange,
                                    const RouteView& route,
                                    const DispatchView& dispatch) {
  const bool is_by_rank = static_cast<Layout>(route.layout) == Layout::kByRank;
  const int num_counts = 3 * route.num_local + 2 + (is_by_rank ? exchange.num_ranks + 1 : 0);
  for (int i = static_cast<int>(threadIdx.x); i < num_counts; i += static_cast<int>(blockDim.x))
    dispatch.counts_to[i] = route.counts[i];
}

// Experts of the rows of kPadded, four rows a thread and step; all have the same number of rows.
__device__ inline void write_padded_experts(const RouteView& route,
                                            const std::int64_t* counts,
                                            const CompleteView& view) {
  const auto quads_of_expert = static_cast<std::uint32_t>(view.num_output_rows / 4) /
                               static_cast<std::uint32_t>(route.num_local);
  const auto num_quads = static_cast<std::uint32_t>(view.num_output_rows / 4);
#pragma unroll 1
  for (std::uint32_t quad = blockIdx.x * blockDim.x + threadIdx.x; quad < num_quads;
       quad += gridDim.x * blockDim.x) {
    const auto expert = static_cast<int>(quad / quads_of_expert);
    const std::int64_t left = counts[expert] - 4 * (quad % quads_of_expert);
    reinterpret_cast<int4*>(view.row_expert)[quad] =
        make_int4(left > 0 ? expert : -1, left > 1 ? expert : -1, left > 2 ? expert : -1,
                  left > 3 ? expert : -1);
  }
}

// Whole grid: counts, experts of rows, ids of unused rows. Touches no row that a peer writes, so it
// needs no gate.
__device__ inline void complete_metadata(const ExchangeView& exchange,
                                         const RouteView& route,
                                         const DispatchView& dispatch) {
  if (blockIdx.x == 0) write_counts(exchange, route, dispatch);
  const CompleteView& view = dispatch.complete;
  if (view.num_output_rows == 0) return;
  const auto layout = static_cast<Layout>(route.layout);
  if (layout == Layout::kByRank) {
    const std::int64_t num_rows = route.counts[0];
    const std::int64_t id_bytes = exchange.top_k * (view.is_topk_int64 != 0 ? 8 : 4);
    if (num_rows < view.num_output_rows)
      fill_bytes(view.topk_idx + num_rows * id_bytes, (view.num_output_rows - num_rows) * id_bytes,
                 0xFF);
    return;
  }
  const std::int64_t* counts = route.counts + 1;
  if (layout == Layout::kPadded && view.num_output_rows % (4 * route.num_local) == 0)
    return write_padded_experts(route, counts, view);
  const std::int64_t* offsets = counts + 2 * route.num_local;
  for (int expert = static_cast<int>(blockIdx.x); expert < route.num_local;
       expert += static_cast<int>(gridDim.x)) {
    const std::int64_t end =
        expert + 1 < route.num_local ? offsets[expert + 1] : view.num_output_rows;
    const std::int64_t real_end = offsets[expert] + counts[expert];
#pragma unroll 1
    for (std::int64_t row = offsets[expert] + threadIdx.x; row < end; row += blockDim.x)
      view.row_expert[row] = row < real_end ? expert : -1;
  }
}

// Whole grid. Likewise.
static __device__ __noinline__ void zero_gaps(const RouteView& route, const CompleteView& view) {
  if (view.num_output_rows == 0) return;
  if (static_cast<Layout>(route.layout) == Layout::kByRank)
    return zero_rows(view, {route.counts[0], view.num_output_rows});
  const std::int64_t* counts = route.counts + 1;
  const std::int64_t* offsets = counts + 2 * route.num_local;
  for (int expert = 0; expert < route.num_local; ++expert)
    zero_rows(view, {offsets[expert] + counts[expert],
                     expert + 1 < route.num_local ? offsets[expert + 1] : view.num_output_rows});
}

}  // namespace ferry::cuda
