#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ferry/exchange.hpp"

namespace ferry::bench {

enum class Launch : int {
  kAuto = 0,  // join a per-process launcher where one is seen, else start the ranks
  kSelf = 1,  // start the ranks
  kEnv = 2,   // join what the environment describes
};

// What `ferry bench` was asked for. Plain data; nothing is checked until check_options().
struct BenchOptions {
  std::string engine = "cpu";
  std::optional<int> ranks;            // default: the launcher's, else kDefaultRanks
  int nodes = 1;                       // pretended
  std::optional<std::int64_t> tokens;  // per rank; default: kDefaultTokens, or all of a recording
  std::int64_t hidden = 7168;
  std::optional<int> experts;  // default: kDefaultExperts, or a recording's largest id + 1
  std::optional<int> topk;     // default: kDefaultTopk, or a recording's columns
  std::string dtype = "bf16";  // bf16, fp8, fp8-ue8m0
  Mode mode = Mode::kHighThroughput;
  Layout layout = Layout::kByRank;
  Sizing sizing = Sizing::kExact;
  CombineForm combine = CombineForm::kAuto;
  bool is_weighted = false;
  std::string routing = "uniform";
  int layer = 0;  // of a recording [tokens, layers, topk]
  int iters = 20;
  int warmup = 3;
  bool is_checked = false;
  bool has_ceiling = true;  // measure this machine's copy ceiling in the same run
  bool is_json = false;
  std::string preset;
  int threads = 0;                // of each rank, CPU engine; 0: usable cores / ranks
  int sms = 0;                    // of each rank, CUDA engine; 0: the plan's choice
  bool has_thread_ranks = false;  // ranks are threads of one process
  std::uint64_t seed = 1;

  Launch launch = Launch::kAuto;
  // Real hosts by hand.
  std::optional<int> node_rank;
  std::optional<int> num_nodes;
  std::optional<int> ranks_per_node;
  std::string address;
};

constexpr int kDefaultRanks = 8;
constexpr std::int64_t kDefaultTokens = 4096;
constexpr std::int64_t kDefaultLowLatencyTokens = 128;
constexpr int kDefaultExperts = 256;
constexpr int kDefaultTopk = 8;

// Fills what the preset fixes and was not given. Throws kInvalidArgument for an unknown name.
void apply_preset(BenchOptions& options);

// Refuses what can be refused without knowing the group: kInvalidArgument naming the option, the
// value and what is accepted.
void check_options(const BenchOptions& options);

[[nodiscard]] bool is_cuda(const BenchOptions& options);
[[nodiscard]] Quantize quantize_of(const BenchOptions& options);

// Names as on the command line and in JSON.
[[nodiscard]] const char* mode_name(Mode mode) noexcept;
[[nodiscard]] const char* layout_name(Layout layout) noexcept;
[[nodiscard]] const char* sizing_name(Sizing sizing) noexcept;
[[nodiscard]] const char* combine_name(CombineForm form) noexcept;

}  // namespace ferry::bench
