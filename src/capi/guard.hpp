#pragma once

#include <exception>
#include <initializer_list>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "capi/last_error.hpp"

namespace ferry::capi {

// An argument that must not be NULL.
struct RequiredArgument {
  const char* name;
  const volatile void* pointer;
};

template <typename Result, typename... Args>
RequiredArgument required_argument(const char* name, Result (*function)(Args...)) {
  return {name, reinterpret_cast<const volatile void*>(function)};
}
inline RequiredArgument required_argument(const char* name, const volatile void* pointer) {
  return {name, pointer};
}

// Runs the body of one C function. Every exception ends here: it becomes the status and the
// thread's last error.
template <typename Body>
ferry_status guard(const char* function,
                   std::initializer_list<RequiredArgument> required,
                   Body&& body) noexcept {
  try {
    for (const RequiredArgument& argument : required)
      FERRY_CHECK(argument.pointer != nullptr, ErrorCode::kInvalidArgument, "{} got NULL for '{}'",
                  function, argument.name);
    std::forward<Body>(body)();
    return FERRY_OK;
  } catch (const Error& error) {
    record_failure(static_cast<ferry_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    record_failure(FERRY_NO_RESOURCE, "the process is out of memory");
  } catch (const std::exception& error) {
    record_failure(FERRY_INTERNAL, error.what());
  } catch (...) {
    record_failure(FERRY_INTERNAL, "an exception of unknown type reached the C ABI");
  }
  return last_failure();
}

// The same for a function that gives a new handle, NULL on failure: `make` returns it.
template <typename Handle, typename Make>
ferry_status guard_new(const char* function,
                       std::initializer_list<RequiredArgument> required,
                       Handle** out_handle,
                       Make&& make) noexcept {
  if (out_handle != nullptr) *out_handle = nullptr;
  return guard(function, required, [&] { *out_handle = std::forward<Make>(make)(); });
}

}  // namespace ferry::capi

// Names a required argument for guard().
#define FERRY_REQUIRED(argument) ::ferry::capi::required_argument(#argument, argument)
