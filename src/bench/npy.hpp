#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ferry::bench {

// Top-k ids of a recording, as they stand in the file.
struct Recording {
  std::int64_t num_tokens = 0;
  std::int64_t num_layers = 1;  // 1 for a file of two dimensions
  int top_k = 0;
  int max_id = -1;                // over all layers; -1 where the file names no expert
  std::vector<std::int32_t> ids;  // [num_tokens, num_layers, top_k], -1 is none
};

// Reads a NumPy .npy file (format 1, 2 or 3) of shape [tokens, topk] or [tokens, layers, topk] in
// C order: int16, int32, int64, uint8, uint16 or uint32, little-endian. Ids are -1 or 0..4095, topk
// is at most 32. Everything else (truncated, foreign, hostile) throws kInvalidArgument naming
// `name`; nothing is allocated before the header agrees with the number of bytes.
[[nodiscard]] Recording parse_npy(const std::string& name, std::span<const std::byte> bytes);

// The same from a file. Throws kSystem in the system's words for one that cannot be read.
[[nodiscard]] Recording read_npy(const std::string& path);

}  // namespace ferry::bench
