#pragma once

#include <functional>

namespace ferry::bench {

// GPUs that the CUDA engine finds. Asked in a child that then ends, so that a process that starts
// ranks holds no driver, and none of its threads, itself. Throws kUnavailable in the words of the
// plugin or the driver, also where there is no GPU.
[[nodiscard]] int count_devices();

// The same for any question: what `ask` returns or throws (ferry::Error) in the child. Throws
// kInternal for a child that ends without an answer.
[[nodiscard]] int ask_child(const std::function<int()>& ask);

}  // namespace ferry::bench
