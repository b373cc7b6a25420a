#pragma once

#include <cstdint>
#include <string>

namespace ferry {

// "1.50 GiB", "512 B": for people; where equality matters print the exact bytes beside it.
[[nodiscard]] std::string human_bytes(std::int64_t bytes);

}  // namespace ferry
