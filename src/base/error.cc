#include "base/error.hpp"

#include <system_error>

namespace ferry {

Error::~Error() = default;
TimeoutError::~TimeoutError() = default;
PeerLostError::~PeerLostError() = default;

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kNoResource: return "no resource";
    case ErrorCode::kSystem: return "system error";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kPeerLost: return "peer lost";
    case ErrorCode::kInternal: return "internal error";
  }
  return "unknown error";
}

void throw_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kTimeout: throw TimeoutError(message);
    case ErrorCode::kPeerLost: throw PeerLostError(message);
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnavailable:
    case ErrorCode::kNoResource:
    case ErrorCode::kSystem:
    case ErrorCode::kInternal: break;
  }
  throw Error(code, message);
}

std::string errno_text(int errno_value) {
  return std::generic_category().message(errno_value);
}

}  // namespace ferry
