#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/device_state.hpp"

namespace ferry::cuda {

// Memory for routes, taken once: device memory for entries and counts, pinned memory for answers. A
// lease returns its place when the route is forgotten; the next route that takes it comes later in
// the exchange's one sequence, so kernels of the old one are done with it. Used by one thread.
class RoutePool {
 public:
  struct Shape {
    std::int64_t max_tokens = 0;
    int top_k = 0;
    int num_experts = 0;
    int num_ranks = 0;
  };

  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();

   private:
    friend class RoutePool;
    std::weak_ptr<std::vector<int>> free_;
    int index_ = -1;
  };

  // Throws kNoResource, kSystem.
  RoutePool(const Shape& shape, cudaStream_t stream);
  RoutePool(const RoutePool&) = delete;
  RoutePool& operator=(const RoutePool&) = delete;
  ~RoutePool();

  // Throws kNoResource with the number of routes that are alive.
  [[nodiscard]] Lease take();
  // The pointers of a lease's place.
  void fill(const Lease& lease, RouteView& view) const;

 private:
  Shape shape_;
  cudaStream_t stream_;
  std::int64_t device_pitch_ = 0;
  std::int64_t answer_pitch_ = 0;
  int num_places_ = 0;
  std::byte* device_ = nullptr;
  std::byte* answers_ = nullptr;
  std::shared_ptr<std::vector<int>> free_;
};

}  // namespace ferry::cuda
