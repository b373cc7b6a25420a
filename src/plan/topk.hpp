#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

namespace ferry::plan {

// top-k ids as the caller holds them: [num_tokens, top_k], rows strided by row_stride elements.
struct TopkView {
  const void* ids = nullptr;
  bool is_int64 = true;
  std::int64_t num_tokens = 0;
  int top_k = 0;
  std::int64_t row_stride = 0;
};

// The first invalid selection, in (token, k) order. Plain data: it travels in the count header.
struct TopkFault {
  enum class Kind : std::int32_t { kOutOfRange = 1, kDuplicate = 2 };
  Kind kind;
  std::int32_t k;
  std::int64_t token;
  std::int64_t expert;
};
static_assert(std::is_trivially_copyable_v<TopkFault>);

// Copies the ids into dense int32 `out` [num_tokens * top_k]. Stops at the first id outside
// [-1, num_experts) and, unless accept_duplicates, at the first expert named twice by one token.
[[nodiscard]] std::optional<TopkFault> read_topk(const TopkView& view,
                                                 int num_experts,
                                                 bool accept_duplicates,
                                                 std::span<std::int32_t> out);

// "rank 3 token 17: topk_idx[17, 2] is 300, expected -1 or 0..255" and the like.
[[nodiscard]] std::string describe(const TopkFault& fault, int rank, int num_experts);

}  // namespace ferry::plan
