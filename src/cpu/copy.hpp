#pragma once

#include <cstddef>

namespace ferry::cpu {

// Copies a row with non-temporal stores where the processor has them (memcpy otherwise): the target
// is another rank's memory and is not read here again. Any alignment, no overlap. The stores are
// visible to others only after stream_fence() and a release store.
void stream_copy(void* destination, const void* source, std::size_t bytes) noexcept;

// Copies one row to several places, reading it once.
void stream_copy_to_many(void* const* destinations,
                         int num_destinations,
                         const void* source,
                         std::size_t bytes) noexcept;

// Orders the streaming stores above before any later store of this thread.
void stream_fence() noexcept;

}  // namespace ferry::cpu
