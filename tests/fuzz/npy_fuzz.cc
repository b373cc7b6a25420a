// Any bytes as a recorded routing: the reader either returns ids that name experts, as many as the
// shape says, or throws ferry::Error. So does dealing them to ranks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "bench/npy.hpp"
#include "bench/routing.hpp"
#include "ferry/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  try {
    const ferry::bench::Recording recording =
        ferry::bench::parse_npy("fuzz.npy", std::as_bytes(std::span(bytes, num_bytes)));
    const auto row_ids = static_cast<std::size_t>(recording.num_layers * recording.top_k);
    if (recording.ids.size() != static_cast<std::size_t>(recording.num_tokens) * row_ids)
      std::abort();
    for (const std::int32_t id : recording.ids)
      if (id < -1 || id > recording.max_id || id >= 4096) std::abort();
    static_cast<void>(ferry::bench::deal_recording("fuzz.npy", recording, 0, 3, 1000));
  } catch (const ferry::Error&) {
    return 0;
  }
  return 0;
}
