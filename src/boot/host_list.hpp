#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry::boot {

// The hosts of a Slurm node list such as "node[01-03,7],gpu5" or "r[1-2]n[1-4]", in its order.
// Zeroes in front of a range's first number keep the width. Throws kInvalidArgument for text that
// is none, and above 65536 hosts. Pure.
[[nodiscard]] std::vector<std::string> expand_host_list(std::string_view list);

}  // namespace ferry::boot
