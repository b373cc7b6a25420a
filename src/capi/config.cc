#include "capi/config.hpp"

#include <type_traits>

#include "capi/enums.hpp"
#include "capi/field.hpp"
#include "capi/sized_struct.hpp"

namespace ferry::capi {

// Arrays of experts' owners pass between int and int32_t without a copy.
static_assert(std::is_same_v<int, std::int32_t>);

namespace {

constexpr std::size_t kMaxExperts = 4096;

}  // namespace

GroupConfig to_config(const ferry_group_config* config) {
  constexpr const char* kName = "ferry_group_config";
  const ferry_group_config given = read_sized(kName, config);
  check_reserved(kName, given.reserved);
  GroupConfig to;
  to.rank = given.rank;
  if (given.size != 0) to.size = given.size;
  if (given.address != nullptr) to.address = given.address;
  if (given.secret != nullptr) to.secret = given.secret;
  to.num_pretended_nodes = given.num_pretended_nodes;
  to.meeting_timeout = to_timeout(kName, "meeting_timeout_ms", given.meeting_timeout_ms);
  to.arrival_timeout = to_timeout(kName, "arrival_timeout_ms", given.arrival_timeout_ms);
  to.progress_timeout = to_timeout(kName, "progress_timeout_ms", given.progress_timeout_ms);
  return to;
}

ExchangeConfig to_config(const ferry_exchange_config* config) {
  constexpr const char* kName = "ferry_exchange_config";
  const ferry_exchange_config given = read_sized(kName, config);
  FERRY_CHECK(given.expert_owner != nullptr || given.num_expert_owners == 0,
              ErrorCode::kInvalidArgument,
              "{}.expert_owner is NULL, expected {} owners as num_expert_owners says", kName,
              given.num_expert_owners);
  // Before the copy: a count that nobody set would ask for all memory.
  FERRY_CHECK(given.num_expert_owners <= kMaxExperts, ErrorCode::kInvalidArgument,
              "{}.num_expert_owners is {}, expected at most {}", kName, given.num_expert_owners,
              kMaxExperts);
  ExchangeConfig to;
  to.num_experts = given.num_experts;
  to.top_k = given.top_k;
  to.hidden = given.hidden;
  to.max_tokens = given.max_tokens;
  if (given.dtype != 0) to.dtype = to_dtype(kName, "dtype", given.dtype);
  to.device.kind = to_enum<DeviceKind>(kName, "device_kind", given.device_kind);
  to.device.index = given.device_index;
  to.mode = to_enum<Mode>(kName, "mode", given.mode);
  to.layout = to_enum<Layout>(kName, "layout", given.layout);
  if (given.expert_alignment != 0) to.expert_alignment = given.expert_alignment;
  to.duplicates = to_enum<Duplicates>(kName, "duplicates", given.duplicates);
  if (given.num_expert_owners != 0)
    to.expert_owner.assign(given.expert_owner, given.expert_owner + given.num_expert_owners);
  to.scale_bytes_per_row = given.scale_bytes_per_row;
  to.max_recv_rows = given.max_recv_rows;
  to.overflow = to_enum<Overflow>(kName, "overflow", given.overflow);
  to.memory_limit = given.memory_limit;
  to.arena_bytes = given.arena_bytes;
  to.row_order = to_enum<RowOrder>(kName, "row_order", given.row_order);
  to.reduction = to_enum<Reduction>(kName, "reduction", given.reduction);
  to.low_latency_form = to_enum<LowLatencyForm>(kName, "low_latency_form", given.low_latency_form);
  to.num_threads = given.num_threads;
  to.num_sms = given.num_sms;
  to.arrival_timeout = to_timeout(kName, "arrival_timeout_ms", given.arrival_timeout_ms);
  to.progress_timeout = to_timeout(kName, "progress_timeout_ms", given.progress_timeout_ms);
  return to;
}

void write_config(const ExchangeConfig& config, ferry_exchange_config* out) {
  ferry_exchange_config to{};
  to.num_experts = config.num_experts;
  to.top_k = config.top_k;
  to.hidden = config.hidden;
  to.max_tokens = config.max_tokens;
  to.dtype = static_cast<ferry_dtype>(config.dtype);
  to.device_kind = static_cast<ferry_device_kind>(config.device.kind);
  to.device_index = config.device.index;
  to.mode = static_cast<ferry_mode>(config.mode);
  to.layout = static_cast<ferry_layout>(config.layout);
  to.expert_alignment = config.expert_alignment;
  to.duplicates = static_cast<ferry_duplicates>(config.duplicates);
  to.expert_owner = config.expert_owner.empty() ? nullptr : config.expert_owner.data();
  to.num_expert_owners = config.expert_owner.size();
  to.scale_bytes_per_row = config.scale_bytes_per_row;
  to.max_recv_rows = config.max_recv_rows;
  to.overflow = static_cast<ferry_overflow>(config.overflow);
  to.memory_limit = config.memory_limit;
  to.arena_bytes = config.arena_bytes;
  to.row_order = static_cast<ferry_row_order>(config.row_order);
  to.reduction = static_cast<ferry_reduction>(config.reduction);
  to.low_latency_form = static_cast<ferry_low_latency_form>(config.low_latency_form);
  to.num_threads = config.num_threads;
  to.num_sms = config.num_sms;
  to.arrival_timeout_ms = config.arrival_timeout.count();
  to.progress_timeout_ms = config.progress_timeout.count();
  write_sized("ferry_exchange_config", to, out);
}

}  // namespace ferry::capi
