#include "capi/sized_struct.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ferry::capi {

namespace {

// No version of any struct comes near; a larger size is memory that nobody initialised.
constexpr std::size_t kMaxStructBytes = 4096;

std::size_t checked_size(const char* name, const void* caller, std::size_t known_bytes) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, caller, sizeof(bytes));
  FERRY_CHECK(bytes >= sizeof(bytes) && bytes <= kMaxStructBytes && bytes % 8 == 0,
              ErrorCode::kInvalidArgument,
              "{}.struct_bytes is {}, expected sizeof({}), which is {} in this library", name,
              bytes, name, known_bytes);
  return bytes;
}

}  // namespace

void check_size(const char* name, const void* caller, std::size_t known_bytes) {
  static_cast<void>(checked_size(name, caller, known_bytes));
}

void read_sized_bytes(const char* name, const void* given, void* known, std::size_t known_bytes) {
  const std::size_t bytes = checked_size(name, given, known_bytes);
  const auto* first = static_cast<const std::byte*>(given);
  if (bytes > known_bytes)
    FERRY_CHECK(std::all_of(first + known_bytes, first + bytes,
                            [](std::byte value) { return value == std::byte{0}; }),
                ErrorCode::kUnavailable,
                "{} of {} bytes sets fields beyond the {} bytes that this library knows", name,
                bytes, known_bytes);
  std::memcpy(known, given, std::min(bytes, known_bytes));
}

void write_sized_bytes(const char* name, const void* known, std::size_t known_bytes, void* caller) {
  constexpr std::size_t kHeader = sizeof(std::size_t);
  const std::size_t bytes = checked_size(name, caller, known_bytes);
  const std::size_t shared = std::min(bytes, known_bytes);
  auto* to = static_cast<std::byte*>(caller);
  std::memcpy(to + kHeader, static_cast<const std::byte*>(known) + kHeader, shared - kHeader);
  std::memset(to + shared, 0, bytes - shared);
}

}  // namespace ferry::capi
