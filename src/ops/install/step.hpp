#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/env.hpp"

namespace ferry::ops {

// One command of a phase. Started directly, never through a shell, so that text from a file stays
// text; the script form quotes every word.
struct Step {
  std::string title;              // what it does, in a few words
  std::vector<std::string> argv;  // program and arguments
  std::vector<Variable> environment;
  std::string folder;     // working folder; empty: the caller's
  bool is_root = false;   // needs root; every other step must not have it
  bool may_fail = false;  // its exit code says nothing (diff)
  std::string input;      // its standard input
  std::string records;    // its output says what was fetched: a name of the version table
  std::string expected;   // its output must contain this; empty: anything
  std::chrono::minutes deadline{10};
};

// Who runs steps: what stands before the command of a root step and of a user's step.
struct Identity {
  bool is_root = false;   // the effective user is root
  std::string sudo_user;  // under sudo: who called it
  [[nodiscard]] std::vector<std::string> prefix_for(bool is_root_step) const;
};

// The whole command line of the step, with sudo and `env -C folder NAME=value` where they are due.
[[nodiscard]] std::vector<std::string> command_line(const Step& step, const Identity& identity);

// "sudo env A=b program 'an argument'": for people and for scripts.
[[nodiscard]] std::string shell_line(const Step& step, const Identity& identity);
[[nodiscard]] std::string shell_quote(const std::string& word);

}  // namespace ferry::ops
