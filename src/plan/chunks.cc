#include "plan/chunks.hpp"

#include "base/error.hpp"
#include "base/human.hpp"

namespace ferry::plan {
namespace {

// Rounds up without the overflow of (a + b - 1) / b.
std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

Chunks plan_chunks(std::int64_t num_items, std::int64_t bytes_per_item, std::int64_t limit_bytes) {
  FERRY_CHECK_INTERNAL(num_items >= 0 && bytes_per_item >= 0, "cannot cut {} items of {} bytes",
                       num_items, bytes_per_item);
  if (num_items == 0) return {};
  if (limit_bytes <= 0 || bytes_per_item == 0) return {1, num_items};
  FERRY_CHECK(bytes_per_item <= limit_bytes, ErrorCode::kInvalidArgument,
              "memory_limit {} ({} bytes) is below one row of {} bytes", human_bytes(limit_bytes),
              limit_bytes, bytes_per_item);
  const std::int64_t num_chunks = divide_up(num_items, limit_bytes / bytes_per_item);
  return {num_chunks, divide_up(num_items, num_chunks)};
}

}  // namespace ferry::plan
