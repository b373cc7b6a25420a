#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "boot/store.hpp"

namespace ferry::boot {

// Collective. Every rank says what failed on it, if something did; where anything did, all ranks
// throw the error of the lowest such rank, so that nobody goes on to wait for one that gave up.
// Messages name their rank. Throws what all_gather throws as well.
void throw_together(Store& store,
                    std::string_view step,
                    const std::optional<Error>& failure,
                    std::chrono::milliseconds timeout);

}  // namespace ferry::boot
