#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <optional>

#include "base/error.hpp"

namespace ferry::cuda {

// Throws kSystem (kNoResource for a shortage of memory) with CUDA's words.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::kNoResource : ErrorCode::kSystem;
  FERRY_THROW(code, "{}: CUDA says '{}' ({})", what, cudaGetErrorString(status),
              cudaGetErrorName(status));
}

// The same failure, its message naming the rank, for the other ranks to read.
inline std::optional<Error> with_rank(const std::optional<Error>& failure, int rank) {
  if (!failure) return std::nullopt;
  return Error(failure->code(), fmt::format("rank {}: {}", rank, failure->what()));
}

}  // namespace ferry::cuda
