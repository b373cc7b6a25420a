#include "bench/options.hpp"

#include "base/error.hpp"

namespace ferry::bench {

namespace {

void check_at_least(const char* option, std::int64_t value, std::int64_t least) {
  FERRY_CHECK(value >= least, ErrorCode::kInvalidArgument, "{} is {}, expected {} or more", option,
              value, least);
}

void check_at_most(const char* option, std::int64_t value, std::int64_t most) {
  FERRY_CHECK(value <= most, ErrorCode::kInvalidArgument, "{} is {}, expected {} or less", option,
              value, most);
}

void check_hosts(const BenchOptions& options) {
  const bool has_any =
      options.node_rank || options.num_nodes || options.ranks_per_node || !options.address.empty();
  if (!has_any) return;
  FERRY_CHECK(
      options.node_rank && options.num_nodes && options.ranks_per_node && !options.address.empty(),
      ErrorCode::kInvalidArgument,
      "--node-rank, --num-nodes, --ranks-per-node and --address belong together, some are "
      "missing; try: ferry bench --node-rank 0 --num-nodes 2 --ranks-per-node 8 --address "
      "HOST:PORT");
  check_at_least("--num-nodes", *options.num_nodes, 1);
  check_at_least("--ranks-per-node", *options.ranks_per_node, 1);
  FERRY_CHECK(*options.node_rank >= 0 && *options.node_rank < *options.num_nodes,
              ErrorCode::kInvalidArgument, "--node-rank is {}, expected 0 to {}",
              *options.node_rank, *options.num_nodes - 1);
  check_at_most("--num-nodes", *options.num_nodes, 2048);
  check_at_most("--ranks-per-node", *options.ranks_per_node, 2048);
  const int ranks = *options.num_nodes * *options.ranks_per_node;
  FERRY_CHECK(!options.ranks || *options.ranks == ranks, ErrorCode::kInvalidArgument,
              "--ranks is {}, but {} nodes of {} ranks are {}", *options.ranks, *options.num_nodes,
              *options.ranks_per_node, ranks);
}

void check_engine(const BenchOptions& options) {
  FERRY_CHECK(options.engine == "cpu" || is_cuda(options), ErrorCode::kInvalidArgument,
              "--engine '{}' is unknown, expected cpu or cuda", options.engine);
  check_at_least("--threads", options.threads, 0);
  check_at_most("--threads", options.threads, 4096);
  check_at_least("--sms", options.sms, 0);
  check_at_most("--sms", options.sms, 1024);
  FERRY_CHECK(is_cuda(options) || options.sms == 0, ErrorCode::kInvalidArgument,
              "--sms is {}, but the cpu engine has none; try: --threads, or --engine cuda",
              options.sms);
  FERRY_CHECK(!is_cuda(options) || options.threads == 0, ErrorCode::kInvalidArgument,
              "--threads is {}, but only the cpu engine moves rows with threads; try: --sms, or "
              "--thread-ranks for ranks that are threads",
              options.threads);
}

void check_thread_ranks(const BenchOptions& options) {
  if (!options.has_thread_ranks) return;
  FERRY_CHECK(options.launch != Launch::kEnv, ErrorCode::kInvalidArgument,
              "--thread-ranks starts all ranks in this process, --launch env joins a launcher's; "
              "try: one of the two");
  FERRY_CHECK(options.address.empty(), ErrorCode::kInvalidArgument,
              "--thread-ranks starts all ranks in this process, --address is for several hosts; "
              "try: one of the two");
}

}  // namespace

void apply_preset(BenchOptions& options) {
  if (options.preset.empty()) return;
  FERRY_CHECK(options.preset == "deepep-intranode", ErrorCode::kInvalidArgument,
              "--preset '{}' is unknown, expected deepep-intranode", options.preset);
  if (!options.tokens) options.tokens = 2048;
  if (!options.experts) options.experts = 256;
  if (!options.topk) options.topk = 8;
}

void check_options(const BenchOptions& options) {
  check_engine(options);
  FERRY_CHECK(options.dtype == "bf16" || options.dtype == "fp8" || options.dtype == "fp8-ue8m0",
              ErrorCode::kInvalidArgument,
              "--dtype '{}' is unknown, expected bf16, fp8 or fp8-ue8m0", options.dtype);
  if (options.ranks) {
    check_at_least("--ranks", *options.ranks, 1);
    check_at_most("--ranks", *options.ranks, 2048);
  }
  check_at_least("--nodes", options.nodes, 1);
  if (options.tokens) {
    check_at_least("--tokens", *options.tokens, 0);
    check_at_most("--tokens", *options.tokens, 1 << 30);
  }
  check_at_least("--hidden", options.hidden, 8);
  check_at_most("--hidden", options.hidden, 1 << 24);
  const std::int64_t multiple = options.dtype == "bf16" ? 8 : 16;
  FERRY_CHECK(options.hidden % multiple == 0, ErrorCode::kInvalidArgument,
              "--hidden is {}, expected a multiple of {} (rows of {} are multiples of 16 bytes)",
              options.hidden, multiple, options.dtype);
  if (options.experts) {
    check_at_least("--experts", *options.experts, 1);
    check_at_most("--experts", *options.experts, 4096);
  }
  if (options.topk) {
    check_at_least("--topk", *options.topk, 1);
    check_at_most("--topk", *options.topk, 32);
  }
  check_at_least("--layer", options.layer, 0);
  check_at_least("--iters", options.iters, 1);
  check_at_most("--iters", options.iters, 1'000'000);
  check_at_least("--warmup", options.warmup, 0);
  FERRY_CHECK(!options.is_weighted || options.layout != Layout::kByRank,
              ErrorCode::kInvalidArgument,
              "--weighted needs one row per expert, --layout by-rank has one per token and rank; "
              "try: --layout by-expert");
  check_hosts(options);
  check_thread_ranks(options);
}

bool is_cuda(const BenchOptions& options) { return options.engine == "cuda"; }

Quantize quantize_of(const BenchOptions& options) {
  if (options.dtype == "fp8") return Quantize::kFp8;
  if (options.dtype == "fp8-ue8m0") return Quantize::kFp8Ue8m0;
  return Quantize::kNone;
}

const char* mode_name(Mode mode) noexcept {
  switch (mode) {
    case Mode::kHighThroughput: return "ht";
    case Mode::kLowLatency: return "ll";
  }
  return "?";
}

const char* layout_name(Layout layout) noexcept {
  switch (layout) {
    case Layout::kByRank: return "by-rank";
    case Layout::kByExpert: return "by-expert";
    case Layout::kPadded: return "padded";
  }
  return "?";
}

const char* sizing_name(Sizing sizing) noexcept {
  switch (sizing) {
    case Sizing::kExact: return "exact";
    case Sizing::kWorstCase: return "worst-case";
  }
  return "?";
}

const char* combine_name(CombineForm form) noexcept {
  switch (form) {
    case CombineForm::kAuto: return "auto";
    case CombineForm::kPull: return "pull";
    case CombineForm::kPush: return "push";
  }
  return "?";
}

}  // namespace ferry::bench
