#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/npy.hpp"
#include "bench/options.hpp"

namespace ferry::bench {

// Every token's K experts, all alike.
struct UniformRouting {};

// Expert popularity falls as 1 / place^exponent; which expert has which place depends on the seed.
struct ZipfRouting {
  double exponent = 1;
};

// DeepSeek-V3: experts stand in `num_groups` groups, a group's score is the sum of its two best
// experts, the `num_kept` best groups are kept and the K best experts chosen among theirs.
struct GroupedRouting {
  int num_kept = 0;
  int num_groups = 0;
};

// A recorded router: a .npy file.
struct RecordedRouting {
  std::string path;
};

using RoutingSpec = std::variant<UniformRouting, ZipfRouting, GroupedRouting, RecordedRouting>;

// "uniform", "zipf:S", "grouped:KEPT/GROUPS", or the path of a .npy file. Throws kInvalidArgument.
[[nodiscard]] RoutingSpec parse_routing(const std::string& text);

// One exchange's routing over all ranks, known to every rank without a word passed.
struct RoutingTable {
  int num_experts = 0;
  int top_k = 0;
  std::int64_t max_tokens = 0;         // largest T
  std::vector<std::vector<int>> topk;  // [R] of [T * top_k]
  std::vector<int> expert_owner;       // [E], contiguous; the first E % R ranks have one more
  std::vector<std::string> notes;      // what a reader should know about the choice

  [[nodiscard]] std::int64_t num_tokens(int rank) const {
    return static_cast<std::int64_t>(topk[static_cast<std::size_t>(rank)].size()) / top_k;
  }
};

// Tokens of each rank that are asked for, or the default of the mode; nothing where a recording is
// dealt out whole.
[[nodiscard]] std::optional<std::int64_t> planned_tokens(const BenchOptions& options);

// Makes the table of `options` for `num_ranks` ranks, reading the recording if there is one. Throws
// kInvalidArgument where experts, top-k, groups and recording do not fit each other.
[[nodiscard]] RoutingTable make_routing_table(const BenchOptions& options, int num_ranks);

// What one rank receives.
struct ReceivedLoad {
  std::int64_t num_tokens = 0;      // each once: the rows of kByRank
  std::int64_t num_selections = 0;  // (token, expert) pairs: the rows of kByExpert
};
[[nodiscard]] std::vector<ReceivedLoad> count_received(const RoutingTable& table);

// Contiguous blocks; the first num_experts % num_ranks ranks own one more.
[[nodiscard]] std::vector<int> make_expert_owner(int num_experts, int num_ranks);

// Deals the tokens of one layer to the ranks in contiguous blocks, the first ones one longer where
// they do not divide; at most `max_tokens` to a rank. Throws kInvalidArgument for a layer that the
// recording has not, or a token that names an expert twice.
[[nodiscard]] std::vector<std::vector<int>> deal_recording(const std::string& name,
                                                           const Recording& recording,
                                                           int layer,
                                                           int num_ranks,
                                                           std::int64_t max_tokens);

}  // namespace ferry::bench
