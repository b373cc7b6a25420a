#pragma once

#include <string_view>

#include "ferry/ferry.h"

namespace ferry::capi {

// The calling thread's last failure. A message that no memory can be had for becomes a fixed text.
void record_failure(ferry_status status, std::string_view message) noexcept;
void clear_failure() noexcept;

// Status of the calling thread's last failure; FERRY_OK where there was none.
[[nodiscard]] ferry_status last_failure() noexcept;

}  // namespace ferry::capi
