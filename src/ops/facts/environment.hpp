#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ferry::ops {

// Facts keep these variables and no others: what steers CUDA, NVSHMEM, NCCL, UCX, DeepEP, the
// loader and the launchers. Nothing whose name speaks of a key, a token or a secret.
[[nodiscard]] bool is_recorded_variable(std::string_view name);

// The recorded ones among "NAME=value" strings separated by NUL, as /proc/PID/environ has them.
[[nodiscard]] std::map<std::string, std::string> parse_environ(std::string_view text);

}  // namespace ferry::ops
