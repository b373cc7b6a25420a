#include "capi/last_error.hpp"

#include <new>
#include <string>

#include "ferry/error.hpp"

namespace ferry::capi {

namespace {

struct Failure {
  ferry_status status = FERRY_OK;
  bool has_message = true;  // false: there was no memory to keep it
  std::string message;
};

thread_local Failure last;

}  // namespace

void record_failure(ferry_status status, std::string_view message) noexcept {
  last.status = status;
  try {
    last.message = message;
    last.has_message = true;
  } catch (const std::exception&) {
    last.has_message = false;
  }
}

void clear_failure() noexcept { record_failure(FERRY_OK, ""); }

ferry_status last_failure() noexcept { return last.status; }

}  // namespace ferry::capi

const char* ferry_last_error(void) {
  using ferry::capi::last;
  return last.has_message ? last.message.c_str() : "out of memory while an error was reported";
}

const char* ferry_status_name(ferry_status status) {
  return status == FERRY_OK ? "ok" : ferry::error_code_name(static_cast<ferry::ErrorCode>(status));
}
