#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What an executed rank does: a test program that starts itself again with --role=NAME.

namespace ferry::support {

using Role = std::function<int(const std::vector<std::string>& arguments)>;

// Namespace-scope objects of this type name the roles of a program.
struct RoleEntry {
  RoleEntry(std::string name, Role role);
};

// Runs the role that the command line names and returns its exit status; nothing when it names
// none. For main(). Exceptions end the role with status 70 and one line "uncaught ...".
[[nodiscard]] std::optional<int> run_role(int argc, char** argv);

// In a role: one line to the test, at once.
void say(std::string_view line);
// In a role: the next command of the test. Empty when the test has gone.
[[nodiscard]] std::string hear();

}  // namespace ferry::support
