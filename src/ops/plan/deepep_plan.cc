#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>

#include "base/human.hpp"
#include "ops/plan/cluster_plan.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr double kMaxInt32 = 2147483647.0;
constexpr int kMaxWarpGroups = 14;
constexpr std::array<std::int64_t, 8> kLowLatencyHidden = {2048, 2560, 3072, 4096,
                                                           5120, 6144, 7168, 8192};
constexpr std::array<int, 9> kNodeCounts = {2, 3, 4, 6, 8, 12, 16, 18, 20};

// DeepEP's tuned chunk sizes, the larger of dispatch's and combine's, by number of ranks.
struct Chunks {
  int ranks, nvl_send, nvl_recv, rdma_send, rdma_recv;
};
constexpr std::array<Chunks, 12> kChunks = {{{2, 24, 256, 6, 128},
                                             {4, 9, 256, 6, 128},
                                             {8, 6, 256, 6, 128},
                                             {16, 36, 288, 20, 128},
                                             {24, 32, 288, 8, 128},
                                             {32, 32, 288, 8, 128},
                                             {48, 32, 288, 8, 128},
                                             {64, 32, 288, 8, 128},
                                             {96, 20, 480, 12, 128},
                                             {128, 20, 560, 12, 128},
                                             {144, 32, 720, 12, 128},
                                             {160, 28, 720, 12, 128}}};

class Checker {
 public:
  explicit Checker(ClusterPlan& plan) : plan_(plan) {}

  // `inequality` with its numbers put in; `nearest` the legal value that is closest.
  void require(bool holds,
               const std::string& id,
               const std::string& title,
               const std::string& inequality,
               const std::string& why,
               const std::string& nearest) {
    plan_.findings.push_back({.id = "plan." + id,
                              .verdict = holds ? Verdict::kOk : Verdict::kFail,
                              .title = title,
                              .seen = holds ? inequality : "does not hold: " + inequality,
                              .why = why,
                              .fix = holds ? "" : nearest,
                              .doc = "docs/first-cluster.md"});
  }
  void advise(bool holds,
              const std::string& id,
              const std::string& title,
              const std::string& inequality,
              const std::string& why,
              const std::string& nearest) {
    require(holds, id, title, inequality, why, nearest);
    if (!holds) plan_.findings.back().verdict = Verdict::kWarn;
  }

 private:
  ClusterPlan& plan_;
};

template <typename T, typename Value>
T nearest_of(std::span<const T> values, Value value) {
  return *std::min_element(values.begin(), values.end(), [&](T a, T b) {
    return std::llabs(static_cast<long long>(a) - static_cast<long long>(value)) <
           std::llabs(static_cast<long long>(b) - static_cast<long long>(value));
  });
}

// The largest number of tokens whose low-latency buffer DeepEP can address.
std::int64_t most_low_latency_tokens(const ClusterShape& shape) {
  std::int64_t least = 0;
  std::int64_t most = std::int64_t{1} << 40;
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    const bool fits =
        low_latency_bytes(middle, shape.hidden, shape.num_physical()) / 16 < kMaxInt32;
    (fits ? least : most) = middle;
  }
  return least;
}

void check_common(const ClusterShape& shape, Checker& checker) {
  const int ranks = shape.num_ranks();
  const int experts = shape.num_physical();
  const int up = (experts + ranks - 1) / ranks * ranks;
  checker.require(experts % ranks == 0, "experts", "experts divide among ranks",
                  fmt::format("{} physical experts % {} ranks = {}, must be 0", experts, ranks,
                              experts % ranks),
                  "every rank holds the same number of physical experts (I8)",
                  fmt::format("--redundant-experts {}", shape.num_redundant + up - experts));
  const int most_topk = shape.is_low_latency ? 11 : 32;
  checker.require(shape.topk <= most_topk && shape.topk <= experts, "topk", "top-k",
                  fmt::format("topk {} <= {}", shape.topk, std::min(most_topk, experts)),
                  "a compile-time cap of DeepEP's kernels (I7)",
                  fmt::format("--topk {}", std::min(most_topk, experts)));
  const auto elements =
      static_cast<double>(shape.num_tokens) * ranks * static_cast<double>(shape.hidden);
  checker.advise(
      elements < kMaxInt32 + 1, "row-offsets", "32-bit row offsets",
      fmt::format("{} rows x {} hidden = {:.0f} < 2^31", shape.num_tokens * ranks, shape.hidden,
                  elements),
      "kernels of several clients compute rows x hidden in 32 bits, and write elsewhere beyond "
      "that (H6)",
      fmt::format("--tokens {}", static_cast<std::int64_t>(
                                     kMaxInt32 / static_cast<double>(shape.hidden) / ranks)));
}

void check_low_latency(const ClusterShape& shape, Checker& checker) {
  const std::int64_t depth = shape.qp_depth > 0 ? shape.qp_depth : 1024;
  const std::int64_t needed = 2 * (shape.num_tokens + 1);
  checker.require(depth >= needed, "qp-depth", "queue depth",
                  fmt::format("NVSHMEM_QP_DEPTH {} >= 2 x ({} tokens + 1) = {}", depth,
                              shape.num_tokens, needed),
                  "a send queue that wraps hangs or gives wrong counts (F4)",
                  fmt::format("export NVSHMEM_QP_DEPTH={}, or --tokens {}", needed, depth / 2 - 1));
  const double bytes = low_latency_bytes(shape.num_tokens, shape.hidden, shape.num_physical());
  const std::int64_t most = most_low_latency_tokens(shape);
  checker.require(bytes / 16 < kMaxInt32, "ll-buffer", "low-latency buffer",
                  fmt::format("{:.0f} bytes / 16 = {:.0f} < 2^31 - 1, with {} physical experts",
                              bytes, bytes / 16, shape.num_physical()),
                  "larger buffers overflow 32-bit offsets without a message (H5)",
                  fmt::format("--tokens {}", most));
  const int groups = shape.warp_groups > 0
                         ? shape.warp_groups
                         : (shape.num_physical() + shape.device_sms - 1) / shape.device_sms;
  const int blocks = (shape.num_physical() + groups - 1) / groups;
  checker.require(
      blocks <= shape.device_sms && groups <= kMaxWarpGroups, "ll-grid", "low-latency grid",
      fmt::format("ceil({} experts / {} warp groups) = {} <= {} SMs, warp groups <= {}",
                  shape.num_physical(), groups, blocks, shape.device_sms, kMaxWarpGroups),
      "'too many blocks in cooperative launch' (I14)",
      fmt::format("--warp-groups {}",
                  (shape.num_physical() + shape.device_sms - 1) / shape.device_sms));
  const std::int64_t nearest =
      nearest_of(std::span<const std::int64_t>(kLowLatencyHidden), shape.hidden);
  checker.require(nearest == shape.hidden, "ll-hidden", "hidden size",
                  fmt::format("hidden {} is one of 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192",
                              shape.hidden),
                  "the kernels are compiled for these sizes: 'Unsupported hidden' (I3)",
                  fmt::format("--hidden {}", nearest));
  const std::int64_t rows = shape.num_tokens * shape.num_ranks();
  checker.require(rows % 4 == 0, "ll-rows", "rows per expert",
                  fmt::format("{} ranks x {} tokens = {}, a multiple of 4", shape.num_ranks(),
                              shape.num_tokens, rows),
                  "scales are laid out four rows at a time",
                  fmt::format("--tokens {}", (shape.num_tokens + 3) / 4 * 4));
}

Chunks chunks_of(const ClusterShape& shape) {
  Chunks chunks = kChunks.back();
  for (const Chunks& row : kChunks)
    if (row.ranks >= shape.num_ranks()) {
      chunks = row;
      break;
    }
  if (shape.nvl_send > 0) chunks.nvl_send = shape.nvl_send;
  if (shape.nvl_recv > 0) chunks.nvl_recv = shape.nvl_recv;
  if (shape.rdma_send > 0) chunks.rdma_send = shape.rdma_send;
  if (shape.rdma_recv > 0) chunks.rdma_recv = shape.rdma_recv;
  return chunks;
}

void check_between_nodes(const ClusterShape& shape, const Chunks& chunks, Checker& checker) {
  checker.require(shape.gpus_per_node == 8, "gpus-per-node", "GPUs per node",
                  fmt::format("{} GPUs per node = 8", shape.gpus_per_node),
                  "DeepEP V1's kernels between nodes assume eight NVLink peers (I11)",
                  "--gpus 8, or DeepEP V2");
  const int nearest = nearest_of(std::span<const int>(kNodeCounts), shape.num_nodes);
  checker.require(nearest == shape.num_nodes, "nodes", "number of nodes",
                  fmt::format("{} nodes is one of 2, 3, 4, 6, 8, 12, 16, 18, 20", shape.num_nodes),
                  "'Unsupported RDMA ranks' (I9, I10)", fmt::format("--nodes {}", nearest));
  const int share = chunks.nvl_recv / shape.num_nodes;
  const int largest = std::max(chunks.nvl_send, chunks.rdma_send);
  // Chunks are whole multiples of four in DeepEP's own tables.
  const int nearest_chunk = (share - 1) / 4 * 4;
  checker.require(share > largest, "nvl-chunk", "receive chunks",
                  fmt::format("{} NVLink receive tokens / {} nodes = {} > largest send chunk {}",
                              chunks.nvl_recv, shape.num_nodes, share, largest),
                  "a node's share of the receive buffer must hold more than one chunk (I12)",
                  fmt::format("--rdma-send {0} and --nvl-send {0} at most, or --nvl-recv {1}",
                              nearest_chunk, (largest + 1) * shape.num_nodes));
  const std::int64_t up = (shape.hidden + 255) / 256 * 256;
  checker.require(shape.hidden % 256 == 0, "hidden", "hidden size",
                  fmt::format("hidden {} % 256 = {}, must be 0", shape.hidden, shape.hidden % 256),
                  "combine between nodes moves rows in pieces of 512 bytes (I4)",
                  fmt::format("--hidden {}", up));
  checker.require(
      shape.num_physical() / shape.num_nodes <= 512, "experts-per-node", "experts per node",
      fmt::format("{} experts / {} nodes = {} <= 512", shape.num_physical(), shape.num_nodes,
                  shape.num_physical() / shape.num_nodes),
      "a fixed array of DeepEP", fmt::format("--nodes {}", (shape.num_physical() + 511) / 512));
}

void add_high_throughput_memory(const ClusterShape& shape,
                                const Chunks& chunks,
                                ClusterPlan& plan) {
  const double channels = shape.num_sms / 2;
  const double peers = std::min(shape.num_ranks(), 8);
  const double nodes = std::max(shape.num_ranks() / 8, 1);
  const double row = 2.0 * static_cast<double>(shape.hidden) + 8 + 128 * 8 + 128 * 4 + 128 * 4;
  const double nvl =
      channels * peers * (2 * nodes + 3) * 4 + channels * peers * chunks.nvl_recv * row;
  const double rdma =
      shape.num_ranks() <= 8
          ? 0
          : 2 * channels * nodes * ((2 * 8 + 2) * 4 + chunks.rdma_recv * (row + 16));
  plan.figures.push_back({"nvl_buffer_bytes", nvl,
                          human_bytes(static_cast<std::int64_t>(nvl)) + " NVLink buffer per GPU"});
  plan.figures.push_back({"rdma_buffer_bytes", rdma,
                          human_bytes(static_cast<std::int64_t>(rdma)) + " RDMA buffer per GPU"});
  plan.figures.push_back(
      {"num_qps", channels,
       fmt::format("{} multiprocessors, {:.0f} queue pairs per peer", shape.num_sms, channels)});
}

}  // namespace

ClusterPlan plan_deepep(const ClusterShape& shape) {
  ClusterPlan plan;
  Checker checker(plan);
  check_common(shape, checker);
  if (shape.is_low_latency) {
    check_low_latency(shape, checker);
    const double bytes = low_latency_bytes(shape.num_tokens, shape.hidden, shape.num_physical());
    plan.figures.push_back(
        {"ll_buffer_bytes", bytes,
         fmt::format("{:.2f} GiB low-latency buffer per GPU", bytes / 1073741824.0)});
    const int local = std::max(1, shape.num_physical() / shape.num_ranks());
    plan.figures.push_back(
        {"num_qps", static_cast<double>(local),
         fmt::format("{} queue pairs per peer, one for each local expert", local)});
    plan.figures.push_back({"qp_depth", static_cast<double>(2 * (shape.num_tokens + 1)),
                            fmt::format("queue depth of {} at least", 2 * (shape.num_tokens + 1))});
  } else {
    const Chunks chunks = chunks_of(shape);
    if (shape.num_nodes > 1) {
      check_between_nodes(shape, chunks, checker);
    } else {
      constexpr std::array<int, 3> kRanks = {2, 4, 8};
      const int nearest = nearest_of(std::span<const int>(kRanks), shape.num_ranks());
      checker.require(nearest == shape.num_ranks(), "ranks", "ranks of one node",
                      fmt::format("{} ranks is one of 2, 4, 8", shape.num_ranks()),
                      "DeepEP's kernels within a node are compiled for these",
                      fmt::format("--gpus {}", nearest));
    }
    add_high_throughput_memory(shape, chunks, plan);
  }
  add_traffic(shape, shape.is_low_latency, plan);
  return plan;
}

}  // namespace ferry::ops
