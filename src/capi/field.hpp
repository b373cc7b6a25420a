#pragma once

#include <chrono>
#include <cstdint>

#include "base/error.hpp"

namespace ferry::capi {

// Checks of single fields of the caller's structs; each throws kInvalidArgument naming the field.

[[nodiscard]] inline std::chrono::milliseconds to_timeout(const char* owner,
                                                          const char* field,
                                                          std::int64_t milliseconds) {
  FERRY_CHECK(milliseconds >= 0, ErrorCode::kInvalidArgument, "{}.{} is {}, expected 0 or more",
              owner, field, milliseconds);
  return std::chrono::milliseconds(milliseconds);
}

inline void check_reserved(const char* owner, std::int32_t value) {
  FERRY_CHECK(value == 0, ErrorCode::kInvalidArgument, "{}.reserved is {}, expected 0", owner,
              value);
}

}  // namespace ferry::capi
