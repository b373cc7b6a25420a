#include "exchange/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exchange/exchange_plan.hpp"
#include "ferry/version.hpp"

namespace ferry::detail {

namespace {

using Field = std::pair<const char*, std::string>;

const char* mode_name(Mode mode) {
  return mode == Mode::kHighThroughput ? "high_throughput" : "low_latency";
}

const char* duplicates_name(Duplicates duplicates) {
  return duplicates == Duplicates::kRefuse ? "refuse" : "accept";
}

const char* overflow_name(Overflow overflow) {
  return overflow == Overflow::kError ? "error" : "drop";
}

const char* row_order_name(RowOrder order) {
  return order == RowOrder::kRankAscending ? "rank_ascending" : "highest_k_ascending";
}

const char* low_latency_form_name(LowLatencyForm form) {
  switch (form) {
    case LowLatencyForm::kAuto: return "auto";
    case LowLatencyForm::kPacked: return "packed";
    case LowLatencyForm::kExpand: return "expand";
  }
  return "unknown";
}

const char* reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kPerNode: return "per_node";
    case Reduction::kPerRank: return "per_rank";
    case Reduction::kWide: return "wide";
    case Reduction::kExact: return "exact";
  }
  return "unknown";
}

// num_threads, num_sms and the device's index are a rank's own business.
std::vector<Field> fields_of(const ExchangeConfig& config) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {
      {"ferry version", version()},
      {"num_experts", text(config.num_experts)},
      {"top_k", text(config.top_k)},
      {"hidden", text(config.hidden)},
      {"max_tokens", text(config.max_tokens)},
      {"dtype", dtype_name(config.dtype)},
      {"device kind", config.device.kind == DeviceKind::kCpu ? "cpu" : "cuda"},
      {"mode", mode_name(config.mode)},
      {"layout", layout_name(config.layout)},
      {"expert_alignment", text(config.expert_alignment)},
      {"duplicates", duplicates_name(config.duplicates)},
      {"expert_owner", fmt::format("{}", fmt::join(config.expert_owner, ","))},
      {"scale_bytes_per_row", text(config.scale_bytes_per_row)},
      {"max_recv_rows", text(config.max_recv_rows)},
      {"overflow", overflow_name(config.overflow)},
      {"memory_limit", text(config.memory_limit)},
      {"arena_bytes", text(config.arena_bytes)},
      {"low_latency_form", low_latency_form_name(config.low_latency_form)},
      {"row_order", row_order_name(config.row_order)},
      {"reduction", reduction_name(config.reduction)},
      {"arrival_timeout", fmt::format("{} ms", config.arrival_timeout.count())},
      {"progress_timeout", fmt::format("{} ms", config.progress_timeout.count())},
  };
}

std::vector<std::string> split_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void check_same_config(boot::Store& store,
                       const ExchangeConfig& config,
                       std::chrono::milliseconds timeout) {
  const std::vector<Field> fields = fields_of(config);
  std::string own;
  for (const Field& field : fields) own += field.second + "\n";
  const std::vector<std::string> all =
      store.all_gather("exchange creation: configuration", own, timeout);
  const std::vector<std::string> reference = split_lines(all.front());
  for (int rank = 1; rank < store.size(); ++rank) {
    const std::vector<std::string> theirs = split_lines(all[static_cast<std::size_t>(rank)]);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::string& expected = i < reference.size() ? reference[i] : "";
      const std::string& got = i < theirs.size() ? theirs[i] : "";
      FERRY_CHECK(got == expected, ErrorCode::kInvalidArgument,
                  "exchange config: {} differs: '{}' on rank 0, '{}' on rank {}", fields[i].first,
                  expected, got, rank);
    }
  }
}

}  // namespace ferry::detail
