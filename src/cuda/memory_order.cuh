#pragma once

#include <cstdint>

#include "layout/gpu_gate.hpp"

// Every memory order that the engine relies on, in one place. Flags cross between GPUs, and between
// a GPU and its host, so all are at system scope. Memory that peers write is read by plain or
// acquire loads, never by the non-coherent path (ld.global.nc, __ldg): that cache does not see
// peers.
namespace ferry::cuda {

// Pairs with store_release of a peer: who sees the value sees what the peer wrote before it.
__device__ __forceinline__ std::uint64_t load_acquire(const std::uint64_t* address) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// Pairs with load_acquire. One writer per word, remote stores only: PCIe has no remote atomics.
__device__ __forceinline__ void store_release(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// A word whose readers are ordered by a later store_release.
__device__ __forceinline__ void store_relaxed(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* address) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// Both halves in one trip; each is whole by itself.
__device__ __forceinline__ void store_relaxed(layout::HeardSlot::Word* address,
                                              layout::HeardSlot::Word word) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(word.low),
               "l"(word.high)
               : "memory");
}

// Pairs with the fence before the peer's store, half by half.
__device__ __forceinline__ layout::HeardSlot::Word load_acquire(
    const layout::HeardSlot::Word* address) {
  layout::HeardSlot::Word word;
  asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(word.low), "=l"(word.high)
               : "l"(address)
               : "memory");
  return word;
}

__device__ __forceinline__ layout::HeardSlot::Word load_relaxed(
    const layout::HeardSlot::Word* address) {
  layout::HeardSlot::Word word;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(word.low), "=l"(word.high)
               : "l"(address)
               : "memory");
  return word;
}

__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Makes what this thread has seen and written (its block's, after a barrier) part of the release
// that follows.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Between an acquire and the first bulk copy that touches the acquired memory, and between ordinary
// writes to it and a bulk copy: the copy engine is another proxy.
__device__ __forceinline__ void fence_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  return time;
}

}  // namespace ferry::cuda
