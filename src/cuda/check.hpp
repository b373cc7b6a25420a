#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

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

}  // namespace ferry::cuda
