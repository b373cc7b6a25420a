#pragma once

#include "cuda/device_state.hpp"
#include "cuda/kernels.hpp"

// The rows of one token as its warp holds them: one entry a lane.
namespace ferry::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

struct Entries {
  RowEntry own;  // this lane's, meaningful below `count`
  int count;
};

// Both loads at once, so that they can be started a token ahead.
__device__ __forceinline__ Entries read_entries(const ExchangeView& exchange,
                                                const RouteView& route,
                                                std::int64_t token,
                                                int lane) {
  Entries entries{{0, 0, 0, 0}, 0};
  if (token >= route.num_tokens) return entries;
  entries.count = route.num_entries[token];
  if (lane < exchange.top_k) entries.own = route.entries[token * exchange.top_k + lane];
  return entries;
}

// Brings a token's list near without holding a register.
__device__ __forceinline__ void prefetch_entries(const ExchangeView& exchange,
                                                 const RouteView& route,
                                                 std::int64_t token,
                                                 int lane) {
  if (token >= route.num_tokens || lane > 1) return;
  const void* address = lane == 0
                            ? static_cast<const void*>(route.num_entries + token)
                            : static_cast<const void*>(route.entries + token * exchange.top_k);
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

// Whether the row at `index` of the list is sent, rather than copied by its receiver.
__device__ __forceinline__ bool is_sent(const DispatchView& dispatch,
                                        const RowEntry& entry,
                                        int index) {
  return dispatch.expands == 0 || entry.slot == index;
}

// Whole warp.
__device__ __forceinline__ RowEntry entry_of(const Entries& entries, int index) {
  const auto low = __shfl_sync(kAllLanes, entries.own.row, index);
  const auto high = __shfl_sync(
      kAllLanes,
      static_cast<std::uint32_t>(entries.own.rank) << 16 | entries.own.slot << 8 | entries.own.k,
      index);
  return {low, static_cast<std::uint16_t>(high >> 16), static_cast<std::uint8_t>(high >> 8 & 0xFF),
          static_cast<std::uint8_t>(high & 0xFF)};
}

}  // namespace ferry::cuda
