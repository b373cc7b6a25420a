#pragma once

#include <cstdint>
#include <vector>

namespace ferry::bench {

// How fast this machine copies memory, by its own best means: what dispatch and combine are held
// against. Bytes read and bytes written both count; GB is 1e9 bytes.
struct Ceiling {
  double gbs = 0;                 // the best of all below
  int threads = 0;                // that reached it
  const char* kind = "";          // "memcpy" or "streaming stores"
  std::int64_t buffer_bytes = 0;  // of each of the two buffers
};

struct CeilingOptions {
  int max_threads = 0;             // 0: every processor this process may use
  std::int64_t row_bytes = 14336;  // rows are copied one after another
  std::int64_t buffer_bytes = 0;   // 0: four times the last-level cache, up to 1 GiB
  int repeats = 5;                 // the best counts
};

// Copies sequential rows between two shared-memory mappings made like the arena (huge pages where
// it has them), on one thread, two, four and so on to all, each pinned to a processor. Takes about
// a second a thread count. Throws kNoResource where the buffers do not fit.
[[nodiscard]] Ceiling measure_ceiling(const CeilingOptions& options = {});

// Processors that this process may run on, by affinity.
[[nodiscard]] std::vector<int> allowed_cpus();

// 1, 2, 4, ... and `most` itself.
[[nodiscard]] std::vector<int> thread_counts(int most);

}  // namespace ferry::bench
