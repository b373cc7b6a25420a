#pragma once

#include <string>
#include <vector>

#include "ops/diagnose/clues.hpp"

namespace ferry::ops {

// How sure a cause is: kLikely where the line or what surrounds it says so, kPossible where
// something speaks for it, kOpen where nothing speaks against it.
enum class Likelihood { kLikely, kPossible, kOpen };

// One explanation of one signal.
struct Hypothesis {
  std::string cause;  // id in causes.cc
  Likelihood likelihood = Likelihood::kLikely;
  std::string because;  // what speaks for it here
  std::string decides;  // what would tell it from the others; empty where nothing is open
};

// Explanations of a signal that needs more than its own line, the likeliest first. Empty: the
// signal is harmless here, or an error that these clues explain by another signal.
[[nodiscard]] std::vector<Hypothesis> explain(Signal signal, const Clues& clues);

}  // namespace ferry::ops
