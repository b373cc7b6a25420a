#include "plan/topk.hpp"

#include <vector>

#include "base/error.hpp"

namespace ferry::plan {
namespace {

template <typename Id>
std::optional<TopkFault> copy_ids(const TopkView& view,
                                  int num_experts,
                                  bool accept_duplicates,
                                  std::int32_t* out) {
  // The last token that named each expert: one look per selection instead of K.
  std::vector<std::int64_t> last_token_of(static_cast<std::size_t>(num_experts), -1);
  const Id* row = static_cast<const Id*>(view.ids);
  for (std::int64_t token = 0; token < view.num_tokens; ++token, row += view.row_stride) {
    for (std::int32_t k = 0; k < view.top_k; ++k) {
      const std::int64_t expert = row[k];
      *out++ = static_cast<std::int32_t>(expert);
      if (expert == -1) continue;
      if (expert < 0 || expert >= num_experts) {
        return TopkFault{TopkFault::Kind::kOutOfRange, k, token, expert};
      }
      std::int64_t& last_token = last_token_of[static_cast<std::size_t>(expert)];
      if (last_token == token && !accept_duplicates) {
        return TopkFault{TopkFault::Kind::kDuplicate, k, token, expert};
      }
      last_token = token;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<TopkFault> read_topk(const TopkView& view,
                                   int num_experts,
                                   bool accept_duplicates,
                                   std::span<std::int32_t> out) {
  FERRY_CHECK_INTERNAL(static_cast<std::int64_t>(out.size()) == view.num_tokens * view.top_k,
                       "topk ids of {} tokens x {} do not fill {} elements", view.num_tokens,
                       view.top_k, out.size());
  return view.is_int64 ? copy_ids<std::int64_t>(view, num_experts, accept_duplicates, out.data())
                       : copy_ids<std::int32_t>(view, num_experts, accept_duplicates, out.data());
}

std::string describe(const TopkFault& fault, int rank, int num_experts) {
  switch (fault.kind) {
    case TopkFault::Kind::kOutOfRange:
      return fmt::format("rank {} token {}: topk_idx[{}, {}] is {}, expected -1 or 0..{}", rank,
                         fault.token, fault.token, fault.k, fault.expert, num_experts - 1);
    case TopkFault::Kind::kDuplicate:
      return fmt::format(
          "rank {} token {}: topk_idx[{}, {}] names expert {} again, expected each expert once "
          "(duplicates = refuse)",
          rank, fault.token, fault.token, fault.k, fault.expert);
  }
  // Only a corrupt count header from a peer leads here.
  return fmt::format("rank {} reports an unknown topk fault {}", rank,
                     static_cast<int>(fault.kind));
}

}  // namespace ferry::plan
