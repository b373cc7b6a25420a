#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace ferry {

// a * b, or kInvalidArgument naming `what` when the product leaves 64 bits.
[[nodiscard]] inline std::int64_t checked_multiply(const char* what,
                                                   std::int64_t a,
                                                   std::int64_t b) {
  std::int64_t product = 0;
  FERRY_CHECK(!__builtin_mul_overflow(a, b, &product),
              ErrorCode::kInvalidArgument,
              "{} overflow 64 bits: {} * {}",
              what,
              a,
              b);
  return product;
}

[[nodiscard]] inline std::int64_t checked_add(const char* what, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  FERRY_CHECK(!__builtin_add_overflow(a, b, &sum),
              ErrorCode::kInvalidArgument,
              "{} overflow 64 bits: {} + {}",
              what,
              a,
              b);
  return sum;
}

}  // namespace ferry
