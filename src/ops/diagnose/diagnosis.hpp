#pragma once

#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/diagnose/evidence.hpp"
#include "ops/diagnose/rules.hpp"
#include "ops/finding.hpp"

namespace ferry::ops {

// One cause, with everything in the logs that led to it.
struct DiagnosedCause {
  Hypothesis hypothesis;
  Event first;                 // the earliest of its lines
  std::int64_t num_lines = 0;  // of the pattern that it was found by
  std::vector<int> ranks;      // that wrote them, where they say so
};

// An error that follows from another one.
struct SecondaryError {
  Event first;
  std::int64_t num_lines = 0;
};

struct Diagnosis {
  std::vector<DiagnosedCause> causes;  // likely ones by time, then the possible, then the open
  std::vector<SecondaryError> secondary;
  std::optional<Event> complaint;  // the earliest line about an error, where no pattern knows any
  LogSize size;
  int num_sources = 0;
};

[[nodiscard]] Diagnosis diagnose(const Clues& clues);

// Fail: likely; warn: possible; unknown: open. `fix` ends with what would decide.
[[nodiscard]] Finding finding_of(const DiagnosedCause& cause);

[[nodiscard]] std::string format_diagnosis(const Diagnosis& diagnosis, bool is_colored);
[[nodiscard]] nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace ferry::ops
