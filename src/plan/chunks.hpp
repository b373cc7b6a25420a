#pragma once

#include <cstdint>

namespace ferry::plan {

// A batch of `num_items` under a limit, cut into equal pieces of whole items.
struct Chunks {
  std::int64_t num_chunks = 0;       // 0 when there is nothing to move
  std::int64_t items_per_chunk = 0;  // the last may be short
};

// limit_bytes <= 0: one chunk. Throws kInvalidArgument with the inequality when one item does not
// fit: "memory_limit 1.00 KiB (1024 bytes) is below one row of 14336 bytes".
[[nodiscard]] Chunks plan_chunks(std::int64_t num_items,
                                 std::int64_t bytes_per_item,
                                 std::int64_t limit_bytes);

}  // namespace ferry::plan
