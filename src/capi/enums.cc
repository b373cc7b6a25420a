#include "capi/enums.hpp"

#include "ferry/ferry.h"

namespace ferry::capi {

namespace {

template <typename Enum>
constexpr bool is_same_value(Enum cpp, std::int32_t c) {
  return static_cast<std::int32_t>(cpp) == c;
}

static_assert(is_same_value(ErrorCode::kInvalidArgument, FERRY_INVALID_ARGUMENT));
static_assert(is_same_value(ErrorCode::kUnavailable, FERRY_UNAVAILABLE));
static_assert(is_same_value(ErrorCode::kNoResource, FERRY_NO_RESOURCE));
static_assert(is_same_value(ErrorCode::kSystem, FERRY_SYSTEM));
static_assert(is_same_value(ErrorCode::kTimeout, FERRY_TIMEOUT));
static_assert(is_same_value(ErrorCode::kPeerLost, FERRY_PEER_LOST));
static_assert(is_same_value(ErrorCode::kInternal, FERRY_INTERNAL));

static_assert(is_same_value(DType::kBf16, FERRY_DTYPE_BF16));
static_assert(is_same_value(DType::kFp16, FERRY_DTYPE_FP16));
static_assert(is_same_value(DType::kFp32, FERRY_DTYPE_FP32));
static_assert(is_same_value(DType::kFp8E4m3, FERRY_DTYPE_FP8_E4M3));
static_assert(is_same_value(DType::kFp8E5m2, FERRY_DTYPE_FP8_E5M2));
static_assert(is_same_value(DType::kInt32, FERRY_DTYPE_INT32));
static_assert(is_same_value(DType::kInt64, FERRY_DTYPE_INT64));
static_assert(is_same_value(DType::kUint8, FERRY_DTYPE_UINT8));
static_assert(is_same_value(DType::kUint16, FERRY_DTYPE_UINT16));
static_assert(is_same_value(DType::kUint32, FERRY_DTYPE_UINT32));

static_assert(is_same_value(DeviceKind::kCpu, FERRY_DEVICE_KIND_CPU));
static_assert(is_same_value(DeviceKind::kCuda, FERRY_DEVICE_KIND_CUDA));

static_assert(is_same_value(Layout::kByRank, FERRY_LAYOUT_BY_RANK));
static_assert(is_same_value(Layout::kByExpert, FERRY_LAYOUT_BY_EXPERT));
static_assert(is_same_value(Layout::kPadded, FERRY_LAYOUT_PADDED));

static_assert(is_same_value(Mode::kHighThroughput, FERRY_MODE_HIGH_THROUGHPUT));
static_assert(is_same_value(Mode::kLowLatency, FERRY_MODE_LOW_LATENCY));

static_assert(is_same_value(Sizing::kExact, FERRY_SIZING_EXACT));
static_assert(is_same_value(Sizing::kWorstCase, FERRY_SIZING_WORST_CASE));

static_assert(is_same_value(Duplicates::kRefuse, FERRY_DUPLICATES_REFUSE));
static_assert(is_same_value(Duplicates::kAccept, FERRY_DUPLICATES_ACCEPT));

static_assert(is_same_value(Overflow::kError, FERRY_OVERFLOW_ERROR));
static_assert(is_same_value(Overflow::kDrop, FERRY_OVERFLOW_DROP));

static_assert(is_same_value(Quantize::kNone, FERRY_QUANTIZE_NONE));
static_assert(is_same_value(Quantize::kFp8, FERRY_QUANTIZE_FP8));
static_assert(is_same_value(Quantize::kFp8Ue8m0, FERRY_QUANTIZE_FP8_UE8M0));

static_assert(is_same_value(ScaleLayout::kRowMajor, FERRY_SCALE_LAYOUT_ROW_MAJOR));
static_assert(is_same_value(ScaleLayout::kColumnMajor, FERRY_SCALE_LAYOUT_COLUMN_MAJOR));

static_assert(is_same_value(Gaps::kUndefined, FERRY_GAPS_UNDEFINED));
static_assert(is_same_value(Gaps::kZeroed, FERRY_GAPS_ZEROED));

static_assert(is_same_value(RowOrder::kRankAscending, FERRY_ROW_ORDER_RANK_ASCENDING));
static_assert(is_same_value(RowOrder::kHighestKAscending, FERRY_ROW_ORDER_HIGHEST_K_ASCENDING));

static_assert(is_same_value(Reduction::kPerNode, FERRY_REDUCTION_PER_NODE));
static_assert(is_same_value(Reduction::kPerRank, FERRY_REDUCTION_PER_RANK));
static_assert(is_same_value(Reduction::kWide, FERRY_REDUCTION_WIDE));
static_assert(is_same_value(Reduction::kExact, FERRY_REDUCTION_EXACT));

static_assert(is_same_value(CombineForm::kAuto, FERRY_COMBINE_FORM_AUTO));
static_assert(is_same_value(CombineForm::kPull, FERRY_COMBINE_FORM_PULL));
static_assert(is_same_value(CombineForm::kPush, FERRY_COMBINE_FORM_PUSH));

static_assert(is_same_value(LowLatencyForm::kAuto, FERRY_LOW_LATENCY_FORM_AUTO));
static_assert(is_same_value(LowLatencyForm::kPacked, FERRY_LOW_LATENCY_FORM_PACKED));
static_assert(is_same_value(LowLatencyForm::kExpand, FERRY_LOW_LATENCY_FORM_EXPAND));

}  // namespace

DType to_dtype(const char* owner, const char* field, std::int32_t value) {
  FERRY_CHECK(dtype_bytes(static_cast<DType>(value)) > 0, ErrorCode::kInvalidArgument,
              "{}.{} is {}, expected {}..{}", owner, field, value, int{FERRY_DTYPE_BF16},
              int{FERRY_DTYPE_UINT32});
  return static_cast<DType>(value);
}

bool to_bool(const char* owner, const char* field, std::int32_t value) {
  FERRY_CHECK(value == 0 || value == 1, ErrorCode::kInvalidArgument, "{}.{} is {}, expected 0 or 1",
              owner, field, value);
  return value == 1;
}

}  // namespace ferry::capi
