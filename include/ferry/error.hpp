#pragma once

#include <stdexcept>
#include <string>

#include "ferry/api.hpp"

namespace ferry {

// What the caller can do about an error; the values are those of ferry_status in ferry.h.
enum class ErrorCode : int {
  kInvalidArgument = 1,  // fix the call
  kUnavailable = 2,      // a feature or a library is missing here
  kNoResource = 3,       // memory, descriptors or another resource ran out
  kSystem = 4,           // the operating system refused
  kTimeout = 5,          // a peer is alive but late; rebuild the group
  kPeerLost = 6,         // a peer died or left; rebuild the group
  kInternal = 7,         // a defect of the library; report it
};

// The code's name as it stands in messages and JSON, such as "peer lost".
FERRY_API const char* error_code_name(ErrorCode code) noexcept;

// Every failure of the control path. what() is one line: what failed, on which object, got and
// expected, on which rank, the cause in the system's words, and after "; try:" one thing to do.
class FERRY_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ~Error() override;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// A peer is alive and did not reach, or did not finish, a step within its deadline.
class FERRY_API TimeoutError : public Error {
 public:
  explicit TimeoutError(const std::string& message) : Error(ErrorCode::kTimeout, message) {}
  ~TimeoutError() override;
};

// A peer's process ended, or it left the group.
class FERRY_API PeerLostError : public Error {
 public:
  explicit PeerLostError(const std::string& message) : Error(ErrorCode::kPeerLost, message) {}
  ~PeerLostError() override;
};

}  // namespace ferry
