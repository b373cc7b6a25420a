#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ferry::ops {

// A value that was read, or why there is none. "Absent" was looked for and is not there; "unknown"
// could not be looked at (no permission, inside a container, not recorded), and is never taken
// for either answer.
template <typename T>
class Fact {
 public:
  Fact() = default;                            // unknown: "not recorded"
  Fact(T value) : value_(std::move(value)) {}  // NOLINT: a value is a known fact
  template <typename U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::decay_t<U>, Fact> &&
           !std::is_same_v<std::decay_t<U>, T>) Fact(U&& value)
      : value_(std::forward<U>(value)) {}  // NOLINT: as above

  [[nodiscard]] static Fact absent() {
    Fact fact;
    fact.is_absent_ = true;
    return fact;
  }
  [[nodiscard]] static Fact unknown(std::string reason) {
    Fact fact;
    fact.reason_ = std::move(reason);
    return fact;
  }

  [[nodiscard]] bool is_known() const noexcept { return value_.has_value(); }
  [[nodiscard]] bool is_absent() const noexcept { return !value_ && is_absent_; }
  [[nodiscard]] bool is_unknown() const noexcept { return !value_ && !is_absent_; }

  // Known facts only.
  [[nodiscard]] const T& value() const {
    FERRY_CHECK_INTERNAL(value_.has_value(), "a fact without a value was used: {}", reason_);
    return *value_;
  }
  [[nodiscard]] const T* operator->() const { return &value(); }
  [[nodiscard]] const T& operator*() const { return value(); }
  [[nodiscard]] T value_or(T fallback) const { return value_.value_or(std::move(fallback)); }
  [[nodiscard]] bool is(const T& expected) const { return value_ == expected; }

  // Why it is unknown, such as "Permission denied".
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  friend bool operator==(const Fact&, const Fact&) = default;

 private:
  std::optional<T> value_;
  bool is_absent_ = false;
  std::string reason_ = "not recorded";
};

}  // namespace ferry::ops
