#pragma once

#include <cstdint>

#include "cuda/entries.cuh"
#include "cuda/gate.cuh"
#include "cuda/kernels.hpp"
#include "ferry/exchange.hpp"

// What a dispatch writes beside its rows, and where destinations want it.
namespace ferry::cuda {

// Where one destination granted its delivery.
struct Target {
  std::byte* rows;
  std::byte* scales;
  std::byte* topk_idx;
  std::byte* weights;
  std::byte* source;
  std::byte* copy_of;
};

// From the words of one peer, which `said` returns, and the base of its arena.
template <typename Said>
__device__ __forceinline__ Target target_of(std::uint64_t base, const Said& said) {
  const auto at = [&](GateSlot::Word word) {
    return reinterpret_cast<std::byte*>(base + said(word));
  };
  return {at(GateSlot::kRowsOffset),    at(GateSlot::kScalesOffset), at(GateSlot::kTopkOffset),
          at(GateSlot::kWeightsOffset), at(GateSlot::kSourceOffset), at(GateSlot::kCopyOffset)};
}

// Behind the gate of an earlier kernel.
__device__ inline void read_targets(const ExchangeView& exchange, Target* targets) {
  for (int peer = static_cast<int>(threadIdx.x); peer < exchange.num_ranks;
       peer += static_cast<int>(blockDim.x)) {
    const HeardSlot& slot = said_by(exchange, exchange.state->sequence, peer);
    targets[peer] =
        target_of(exchange.peer_base[peer], [&](GateSlot::Word word) { return heard(slot, word); });
  }
}

template <typename Value>
__device__ __forceinline__ void store(std::byte* to, Value value) {
  *reinterpret_cast<Value*>(to) = value;
}

__device__ __forceinline__ float weight_of(const DispatchView& dispatch,
                                           std::int64_t token,
                                           int k) {
  return *reinterpret_cast<const float*>(dispatch.weights + token * dispatch.weights_pitch + k * 4);
}

// Division by a number that is known once; exact for dividends below 2^20.
class Inverse {
 public:
  Inverse() = default;
  __device__ explicit Inverse(int divisor) : inverse_(1.0F / static_cast<float>(divisor)) {}
  __device__ __forceinline__ int quotient(int dividend) const {
    // Half a step away from every whole number.
    return static_cast<int>((static_cast<float>(dividend) + 0.5F) * inverse_);
  }

 private:
  float inverse_;
};

// What stands beside a row, in pieces that one lane stores.
class Metadata {
 public:
  __device__ Metadata(const ExchangeView& exchange,
                      const RouteView& route,
                      const DispatchView& dispatch)
      : exchange_(exchange),
        route_(route),
        dispatch_(dispatch),
        is_by_rank_(static_cast<Layout>(route.layout) == Layout::kByRank) {
    // Two wide ids or four narrow ones fill 16 bytes.
    ids_per_piece_ = is_by_rank_ ? (dispatch.is_topk_int64 != 0 ? 2 : 4) : 0;
    if (is_by_rank_ && exchange.top_k % ids_per_piece_ != 0) ids_per_piece_ = 1;
    num_id_pieces_ = is_by_rank_ ? exchange.top_k / ids_per_piece_ : 0;
    weights_per_piece_ = is_by_rank_ && exchange.top_k % 4 == 0 ? 4 : 1;
    num_weight_pieces_ =
        dispatch.weights == nullptr ? 0 : (is_by_rank_ ? exchange.top_k / weights_per_piece_ : 1);
    // Dense scales of whole 16 bytes go as such, others element by element.
    const bool is_wide = dispatch.scale_stride == dispatch.scale_element_bytes &&
                         dispatch.scale_bytes % 16 == 0 && dispatch.scale_pitch % 16 == 0 &&
                         reinterpret_cast<std::uint64_t>(dispatch.scales) % 16 == 0;
    scale_piece_bytes_ = is_wide ? 16 : dispatch.scale_element_bytes;
    num_scale_pieces_ = dispatch.scales == nullptr
                            ? 0
                            : static_cast<int>(dispatch.scale_bytes / scale_piece_bytes_);
    num_pieces_ = 1 + num_id_pieces_ + num_weight_pieces_ + num_scale_pieces_;
    inverse_ = Inverse(num_pieces_);
  }

  // Whole warp: everything beside all rows of a token; of several warps, each its share.
  __device__ void write(const Target* targets,
                        std::int64_t token,
                        const Entries& entries,
                        int lane,
                        int warp = 0,
                        int num_warps = 1) const {
    const int total = entries.count * num_pieces_;
#pragma unroll 1
    for (int first = warp * 32; first < total; first += num_warps * 32) {
      const int index = first + lane;
      const int row = inverse_.quotient(index);
      const RowEntry entry = entry_of(entries, min(row, entries.count - 1));
      if (index >= total) continue;
      const int piece = index - row * num_pieces_;
      // Scales go with the row that is sent.
      if (piece < num_pieces_ - num_scale_pieces_ || is_sent(dispatch_, entry, row))
        write_piece(targets[entry.rank], token, entry, piece);
    }
    if (dispatch_.expands == 0 || warp != 0) return;
    const std::uint32_t first = __shfl_sync(kAllLanes, entries.own.row, entries.own.slot);
    if (lane < entries.count)
      store(targets[entries.own.rank].copy_of + static_cast<std::int64_t>(entries.own.row) * 4,
            entries.own.slot == lane ? -1 : static_cast<std::int32_t>(first));
  }

 private:
  __device__ void write_piece(const Target& target,
                              std::int64_t token,
                              const RowEntry& entry,
                              int piece) const {
    const std::int64_t row = entry.row;
    if (piece == 0) {
      store(target.source + row * 8,
            make_int2(static_cast<int>(token), is_by_rank_ ? entry.slot : entry.k));
      return;
    }
    piece -= 1;
    if (piece < num_id_pieces_) return write_ids(target, token, entry, piece);
    piece -= num_id_pieces_;
    if (piece < num_weight_pieces_) return write_weights(target, token, entry, piece);
    write_scales(target, token, row, piece - num_weight_pieces_);
  }

  // The local id of the expert in column k if it lives at `rank`, else -1.
  __device__ int local_id(std::int64_t token, int k, int rank) const {
    const std::uint32_t home = route_.home[token * exchange_.top_k + k];
    return home != RouteView::kNowhere && static_cast<int>(home >> 16) == rank
               ? static_cast<int>(home & 0xFFFF)
               : -1;
  }

  __device__ void write_ids(const Target& target,
                            std::int64_t token,
                            const RowEntry& entry,
                            int piece) const {
    const int k = piece * ids_per_piece_;
    const std::int64_t at = static_cast<std::int64_t>(entry.row) * exchange_.top_k + k;
    const auto id = [&](int offset) { return local_id(token, k + offset, entry.rank); };
    if (dispatch_.is_topk_int64 != 0) {
      std::byte* to = target.topk_idx + at * 8;
      if (ids_per_piece_ == 2)
        store(to, make_longlong2(id(0), id(1)));
      else
        store(to, static_cast<long long>(id(0)));
    } else {
      std::byte* to = target.topk_idx + at * 4;
      if (ids_per_piece_ == 4)
        store(to, make_int4(id(0), id(1), id(2), id(3)));
      else
        store(to, id(0));
    }
  }

  __device__ void write_weights(const Target& target,
                                std::int64_t token,
                                const RowEntry& entry,
                                int piece) const {
    if (!is_by_rank_) {
      store(target.weights + static_cast<std::int64_t>(entry.row) * 4,
            weight_of(dispatch_, token, entry.k));
      return;
    }
    const int k = piece * weights_per_piece_;
    std::byte* to =
        target.weights + (static_cast<std::int64_t>(entry.row) * exchange_.top_k + k) * 4;
    // The weight of a column that lives elsewhere is 0, whatever the caller's tensor holds.
    const auto weight = [&](int offset) {
      return local_id(token, k + offset, entry.rank) >= 0 ? weight_of(dispatch_, token, k + offset)
                                                          : 0.0F;
    };
    if (weights_per_piece_ == 4)
      store(to, make_float4(weight(0), weight(1), weight(2), weight(3)));
    else
      store(to, weight(0));
  }

  __device__ void write_scales(const Target& target,
                               std::int64_t token,
                               std::int64_t row,
                               int piece) const {
    std::byte* to = target.scales + row * dispatch_.scale_bytes + piece * scale_piece_bytes_;
    const std::byte* from = dispatch_.scales + token * dispatch_.scale_pitch;
    if (scale_piece_bytes_ == 16) {
      store(to, *reinterpret_cast<const uint4*>(from + piece * 16));
      return;
    }
    from += piece * dispatch_.scale_stride;
    switch (scale_piece_bytes_) {
      case 1: store(to, *reinterpret_cast<const std::uint8_t*>(from)); break;
      case 2: store(to, *reinterpret_cast<const std::uint16_t*>(from)); break;
      default: store(to, *reinterpret_cast<const std::uint32_t*>(from)); break;
    }
  }

  const ExchangeView& exchange_;
  const RouteView& route_;
  const DispatchView& dispatch_;
  bool is_by_rank_;
  int ids_per_piece_;
  int num_id_pieces_;
  int weights_per_piece_;
  int num_weight_pieces_;
  int scale_piece_bytes_;
  int num_scale_pieces_;
  int num_pieces_;
  Inverse inverse_;
};

}  // namespace ferry::cuda
