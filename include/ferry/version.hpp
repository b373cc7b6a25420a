#pragma once

#include "ferry/api.hpp"

#define FERRY_VERSION_MAJOR 0
#define FERRY_VERSION_MINOR 1
#define FERRY_VERSION_PATCH 0

namespace ferry {

// "MAJOR.MINOR.PATCH" of the library that is loaded.
[[nodiscard]] FERRY_API const char* version() noexcept;

}  // namespace ferry
