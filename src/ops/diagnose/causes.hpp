#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ferry::ops {

// One cause that logs can show: one row of the table in causes.cc, from which findings and the list
// in docs/troubleshooting.md are made.
struct Cause {
  const char* id;        // stable: "build.cccl-headers"
  const char* title;     // what is wrong
  const char* why;       // how it comes about
  const char* fix;       // a command, a variable or a version
  const char* reported;  // where it was met
};

[[nodiscard]] std::span<const Cause> log_causes();
// Throws kInternal for an id that the table does not have.
[[nodiscard]] const Cause& cause_of(std::string_view id);

}  // namespace ferry::ops
