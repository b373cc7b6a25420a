#include "exchange/exchange_plan.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/human.hpp"
#include "plan/route_plan.hpp"

namespace ferry::detail {

namespace {

constexpr std::int64_t kRowMultipleBytes = 16;
constexpr int kMostExperts = 4096;
constexpr int kMostTopk = 32;
constexpr int kMostRanks = 2048;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 26;  // token * top_k fits 32 bits
// Above this a low-latency region is no longer small, and rows go straight into their places.
constexpr std::int64_t kMostExpandBytes = std::int64_t{256} << 20;

void check_range(const char* field, std::int64_t got, std::int64_t low, std::int64_t high) {
  FERRY_CHECK(got >= low && got <= high, ErrorCode::kInvalidArgument,
              "exchange config: {} is {}, expected {}..{}", field, got, low, high);
}

void check_fields(const ExchangeConfig& config, int num_ranks) {
  check_range("number of ranks", num_ranks, 1, kMostRanks);
  check_range("num_experts", config.num_experts, 1, kMostExperts);
  check_range("top_k", config.top_k, 1, kMostTopk);
  FERRY_CHECK(config.top_k <= config.num_experts, ErrorCode::kInvalidArgument,
              "exchange config: top_k {} is larger than num_experts {}", config.top_k,
              config.num_experts);
  check_range("max_tokens", config.max_tokens, 1, kMostTokens);
  check_range("expert_alignment", config.expert_alignment, 1, 1 << 20);
  check_range("max_recv_rows", config.max_recv_rows, 0, INT64_MAX);
  check_range("memory_limit", config.memory_limit, 0, INT64_MAX);
  check_range("arena_bytes", config.arena_bytes, 0, std::int64_t{1} << 45);
  check_range("scale_bytes_per_row", config.scale_bytes_per_row, 0, 1 << 20);
  check_range("num_threads", config.num_threads, 0, 1024);
  check_range("num_sms", config.num_sms, 0, 1024);
  check_range("hidden", config.hidden, 1, 1 << 24);
  const auto row_bytes = config.hidden * static_cast<std::int64_t>(dtype_bytes(config.dtype));
  FERRY_CHECK(row_bytes > 0 && row_bytes % kRowMultipleBytes == 0, ErrorCode::kInvalidArgument,
              "exchange config: hidden {} x {} makes rows of {} bytes, expected a multiple of {}",
              config.hidden, dtype_name(config.dtype), row_bytes, kRowMultipleBytes);
  check_range("device index", config.device.index, 0, 1023);
}

int most_local_experts(const plan::OwnerMap& owners) {
  int most = 0;
  for (int rank = 0; rank < owners.num_ranks(); ++rank)
    most = std::max(most, owners.num_local(rank));
  return most;
}

std::int64_t worst_rows(const ExchangeConfig& config, int num_ranks, Layout layout, int num_local) {
  plan::RouteShape shape;
  shape.layout = layout;
  shape.top_k = config.top_k;
  shape.max_tokens = config.max_tokens;
  shape.expert_alignment = config.expert_alignment;
  return plan::worst_case_rows(shape, num_ranks, num_local,
                               config.duplicates == Duplicates::kAccept);
}

}  // namespace

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::kByRank: return "by_rank";
    case Layout::kByExpert: return "by_expert";
    case Layout::kPadded: return "padded";
  }
  return "unknown";
}

std::int64_t worst_case_output_rows(const ExchangeConfig& config,
                                    const plan::OwnerMap& owners,
                                    Layout layout,
                                    std::int64_t row_cap,
                                    int rank) {
  if (layout == Layout::kPadded)
    return worst_rows(config, owners.num_ranks(), layout, owners.num_local(rank));
  return slot_rows(config, owners, layout, row_cap);
}

std::int64_t slot_rows(const ExchangeConfig& config,
                       const plan::OwnerMap& owners,
                       Layout layout,
                       std::int64_t row_cap) {
  const std::int64_t rows =
      worst_rows(config, owners.num_ranks(), layout, most_local_experts(owners));
  return layout == Layout::kPadded ? rows : std::min(rows, row_cap);
}

ExchangePlan plan_exchange(const ExchangeConfig& config, int num_ranks) {
  check_fields(config, num_ranks);
  ExchangePlan out;
  if (config.expert_owner.empty()) {
    out.owners =
        std::make_shared<plan::OwnerMap>(plan::make_block_owner_map(config.num_experts, num_ranks));
  } else {
    FERRY_CHECK(static_cast<int>(config.expert_owner.size()) == config.num_experts,
                ErrorCode::kInvalidArgument,
                "exchange config: expert_owner names {} experts, num_experts is {}",
                config.expert_owner.size(), config.num_experts);
    out.owners =
        std::make_shared<plan::OwnerMap>(plan::make_owner_map(config.expert_owner, num_ranks));
  }
  out.row_cap = config.max_recv_rows > 0 ? config.max_recv_rows : INT64_MAX;
  // A GPU's arena is physical memory: room for the configured layout only.
  out.delivery_rows = slot_rows(config, *out.owners, config.layout, out.row_cap);
  if (config.device.kind == DeviceKind::kCpu) {
    for (const Layout layout : {Layout::kByRank, Layout::kByExpert})
      out.delivery_rows =
          std::max(out.delivery_rows, slot_rows(config, *out.owners, layout, out.row_cap));
  }
  out.max_row_bytes = config.hidden * static_cast<std::int64_t>(dtype_bytes(config.dtype));
  const std::int64_t quantize_scale_bytes = (config.hidden + 127) / 128 * 4;
  out.max_scale_bytes = std::max(config.scale_bytes_per_row, quantize_scale_bytes);

  layout::ArenaShape shape;
  shape.num_ranks = num_ranks;
  shape.is_gpu = config.device.kind == DeviceKind::kCuda;
  shape.num_experts = config.num_experts;
  shape.top_k = config.top_k;
  shape.max_tokens = config.max_tokens;
  shape.max_row_bytes = out.max_row_bytes;
  shape.max_sum_row_bytes = config.hidden * 4;
  shape.max_scale_bytes = out.max_scale_bytes;
  shape.delivery_rows = out.delivery_rows;
  shape.slots_per_token = plan::slots_per_token(Layout::kByExpert, num_ranks, config.top_k);
  shape.memory_limit = config.memory_limit;
  // Beside two outputs a GPU's heap has room for small tensors: its arena grows in such steps
  // anyway.
  constexpr std::int64_t kSmallTensorBytes = std::int64_t{2} << 20;
  shape.heap_bytes = config.arena_bytes > 0
                         ? config.arena_bytes
                         : checked_multiply("arena bytes", out.delivery_rows,
                                            2 * std::max(out.max_row_bytes, config.hidden * 2)) +
                               (shape.is_gpu ? kSmallTensorBytes : 0);
  const std::int64_t token_bytes =
      shape.slots_per_token * layout::staging_pitch(shape.max_sum_row_bytes, shape.top_k);
  FERRY_CHECK(config.memory_limit == 0 || config.memory_limit >= token_bytes,
              ErrorCode::kInvalidArgument,
              "exchange config: memory_limit is {} bytes, staging of one token needs {}",
              config.memory_limit, token_bytes);

  if (!shape.is_gpu && config.mode == Mode::kLowLatency &&
      config.low_latency_form != LowLatencyForm::kPacked) {
    shape.is_low_latency = true;
    const layout::ArenaLayout fixed = layout::make_arena_layout(shape);
    const std::int64_t region_bytes = layout::ArenaLayout::kLowLatencyBuffers *
                                      (fixed.ll_dispatch_bytes + fixed.ll_combine_bytes);
    const bool is_within_limit = config.memory_limit == 0 || region_bytes <= config.memory_limit;
    FERRY_CHECK(is_within_limit || config.low_latency_form == LowLatencyForm::kAuto,
                ErrorCode::kInvalidArgument,
                "exchange config: low-latency regions need {} ({} bytes), memory_limit is {} bytes",
                human_bytes(region_bytes), region_bytes, config.memory_limit);
    shape.is_low_latency = config.low_latency_form == LowLatencyForm::kExpand ||
                           (is_within_limit && region_bytes <= kMostExpandBytes);
  }
  out.is_low_latency_expand = shape.is_low_latency;
  out.arena = layout::make_arena_layout(shape);
  return out;
}

MemoryNeed memory_need(const ExchangePlan& plan) {
  MemoryNeed need;
  need.arena_virtual_bytes = plan.arena.total_bytes;
  need.delivery_bytes = plan.arena.delivery.bytes;
  need.staging_bytes = plan.arena.staging_bytes * layout::ArenaLayout::kStagingAreas +
                       plan.arena.ll_dispatch_bytes * layout::ArenaLayout::kLowLatencyBuffers;
  need.control_bytes = plan.arena.deliveries[0];
  return need;
}

}  // namespace ferry::detail
