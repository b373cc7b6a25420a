#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "ferry/exchange.hpp"
#include "ferry/tensor.hpp"

namespace ferry::capi {

// How many values each enumeration of the C ABI has; they count from 0. DType counts from 1.
template <typename Enum>
inline constexpr std::int32_t kNumValues = 0;
template <>
inline constexpr std::int32_t kNumValues<DeviceKind> = 2;
template <>
inline constexpr std::int32_t kNumValues<Layout> = 3;
template <>
inline constexpr std::int32_t kNumValues<Mode> = 2;
template <>
inline constexpr std::int32_t kNumValues<Sizing> = 2;
template <>
inline constexpr std::int32_t kNumValues<Duplicates> = 2;
template <>
inline constexpr std::int32_t kNumValues<Overflow> = 2;
template <>
inline constexpr std::int32_t kNumValues<Quantize> = 3;
template <>
inline constexpr std::int32_t kNumValues<ScaleLayout> = 2;
template <>
inline constexpr std::int32_t kNumValues<Gaps> = 2;
template <>
inline constexpr std::int32_t kNumValues<RowOrder> = 2;
template <>
inline constexpr std::int32_t kNumValues<Reduction> = 4;
template <>
inline constexpr std::int32_t kNumValues<CombineForm> = 3;
template <>
inline constexpr std::int32_t kNumValues<LowLatencyForm> = 3;

// A number of the caller's as the enumeration. Throws kInvalidArgument naming `field`.
template <typename Enum>
[[nodiscard]] Enum to_enum(const char* owner, const char* field, std::int32_t value) {
  static_assert(kNumValues<Enum> > 0);
  FERRY_CHECK(value >= 0 && value < kNumValues<Enum>, ErrorCode::kInvalidArgument,
              "{}.{} is {}, expected 0..{}", owner, field, value, kNumValues<Enum> - 1);
  return static_cast<Enum>(value);
}

[[nodiscard]] DType to_dtype(const char* owner, const char* field, std::int32_t value);

// A C truth value. Only 0 and 1, so that other bits stay free for later meanings.
[[nodiscard]] bool to_bool(const char* owner, const char* field, std::int32_t value);

}  // namespace ferry::capi
