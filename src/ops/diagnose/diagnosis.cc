#include "ops/diagnose/diagnosis.hpp"

#include <algorithm>

#include "ops/diagnose/causes.hpp"

namespace ferry::ops {

namespace {

// Signals that accuse nobody by themselves, and yet have an explanation.
bool is_explained(const Pattern& pattern) {
  return pattern.role == Role::kError || pattern.signal == Signal::kRocepName ||
         pattern.signal == Signal::kRdmaBandwidth;
}

std::vector<Hypothesis> hypotheses_of(const Pattern& pattern, const Clues& clues) {
  if (*pattern.cause != '\0') return {{pattern.cause, Likelihood::kLikely, "", ""}};
  return explain(pattern.signal, clues);
}

// The same cause found by two signals is one: the surer word and the earlier line count.
void merge(std::vector<DiagnosedCause>& causes, DiagnosedCause added) {
  const auto same = std::find_if(causes.begin(), causes.end(), [&](const DiagnosedCause& cause) {
    return cause.hypothesis.cause == added.hypothesis.cause;
  });
  if (same == causes.end()) {
    causes.push_back(std::move(added));
    return;
  }
  if (is_earlier(added.first, same->first)) {
    same->first = added.first;
    same->num_lines = added.num_lines;
    same->ranks = added.ranks;
  }
  if (added.hypothesis.likelihood < same->hypothesis.likelihood)
    same->hypothesis = added.hypothesis;
}

void order(std::vector<DiagnosedCause>& causes) {
  std::stable_sort(causes.begin(), causes.end(),
                   [](const DiagnosedCause& a, const DiagnosedCause& b) {
                     if (a.hypothesis.likelihood != b.hypothesis.likelihood)
                       return a.hypothesis.likelihood < b.hypothesis.likelihood;
                     return a.first.order != b.first.order && is_earlier(a.first, b.first);
                   });
}

// At the end of a run that failed before, a crash in the teardown is no cause.
void drop_teardown(Diagnosis& diagnosis) {
  if (diagnosis.causes.size() < 2) return;
  const auto late = std::find_if(
      diagnosis.causes.begin(), diagnosis.causes.end(),
      [](const DiagnosedCause& cause) { return cause.hypothesis.cause == "teardown.dealloc-pd"; });
  if (late == diagnosis.causes.end()) return;
  diagnosis.secondary.push_back({late->first, late->num_lines});
  diagnosis.causes.erase(late);
}

}  // namespace

Diagnosis diagnose(const Clues& clues) {
  const Evidence& evidence = clues.evidence();
  Diagnosis diagnosis;
  diagnosis.size = evidence.size();
  diagnosis.num_sources = evidence.num_sources();
  for (std::size_t row = 0; row < evidence.sightings().size(); ++row) {
    const Sighting& sighting = evidence.sightings()[row];
    const Pattern& pattern = log_patterns()[row];
    if (sighting.count == 0) continue;
    if (pattern.role == Role::kSecondary)
      diagnosis.secondary.push_back({*sighting.first, sighting.count});
    if (!is_explained(pattern)) continue;
    for (Hypothesis& hypothesis : hypotheses_of(pattern, clues))
      merge(diagnosis.causes, {std::move(hypothesis),
                               *sighting.first,
                               sighting.count,
                               {sighting.ranks.begin(), sighting.ranks.end()}});
  }
  order(diagnosis.causes);
  drop_teardown(diagnosis);
  std::sort(diagnosis.secondary.begin(), diagnosis.secondary.end(),
            [](const SecondaryError& a, const SecondaryError& b) {
              return a.first.order != b.first.order && is_earlier(a.first, b.first);
            });
  if (diagnosis.causes.empty() && !diagnosis.secondary.empty()) {
    const SecondaryError& first = diagnosis.secondary.front();
    diagnosis.causes.push_back(
        {{"log.secondary-only", Likelihood::kOpen, "", ""}, first.first, first.num_lines, {}});
  }
  if (diagnosis.causes.empty()) diagnosis.complaint = evidence.first_complaint();
  return diagnosis;
}

}  // namespace ferry::ops
