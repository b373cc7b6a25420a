#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ops/diagnose/causes.hpp"
#include "ops/diagnose/diagnosis.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr std::size_t kShownRanks = 8;

Verdict verdict_of(Likelihood likelihood) {
  switch (likelihood) {
    case Likelihood::kLikely: return Verdict::kFail;
    case Likelihood::kPossible: return Verdict::kWarn;
    case Likelihood::kOpen: return Verdict::kUnknown;
  }
  return Verdict::kUnknown;
}

const char* likelihood_name(Likelihood likelihood) {
  switch (likelihood) {
    case Likelihood::kLikely: return "likely";
    case Likelihood::kPossible: return "possible";
    case Likelihood::kOpen: return "open";
  }
  return "open";
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const std::size_t shown = std::min(ranks.size(), kShownRanks);
  const std::string list = fmt::format(
      "{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return fmt::format(", {} {}{}", ranks.size() == 1 ? "rank" : "ranks", list,
                     shown < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

std::string place(const Event& event) { return fmt::format("{}:{}", event.source, event.line); }

std::string line_text(const Event& event, std::int64_t num_lines) {
  return fmt::format("{}: {}{}", place(event), trim(event.text),
                     num_lines > 1 ? fmt::format(" ({} such lines)", num_lines) : "");
}

// As Markdown's headings are linked to: without the dots.
std::string anchor_of(std::string id) {
  std::erase(id, '.');
  return id;
}

// FerryEP's own errors carry their advice: "... ; try: ferry doctor".
std::string advice_in(const std::string& message) {
  const std::size_t at = message.find("; try: ");
  return at == std::string::npos ? "" : message.substr(at + 7);
}

std::string tail_lines(const Diagnosis& diagnosis) {
  std::string out;
  if (!diagnosis.secondary.empty() &&
      diagnosis.causes.front().hypothesis.cause != "log.secondary-only") {
    out += "secondary errors, which follow from the above:\n";
    for (const SecondaryError& error : diagnosis.secondary)
      out += "    " + escape_controls(line_text(error.first, error.num_lines)) + "\n";
  }
  if (diagnosis.complaint)
    out += "no known problem; the earliest line that speaks of an error:\n    " +
           escape_controls(line_text(*diagnosis.complaint, 1)) + "\n";
  else if (diagnosis.causes.empty())
    out += "no known problem\n";
  out += fmt::format(
      "read {} line{} of {} log{}{}\n", diagnosis.size.lines, diagnosis.size.lines == 1 ? "" : "s",
      diagnosis.num_sources, diagnosis.num_sources == 1 ? "" : "s",
      diagnosis.size.cut_lines > 0 ? fmt::format(" ({} longer than {} bytes were cut)",
                                                 diagnosis.size.cut_lines, kLongestLine)
                                   : "");
  return out;
}

}  // namespace

Finding finding_of(const DiagnosedCause& diagnosed) {
  const Hypothesis& hypothesis = diagnosed.hypothesis;
  const Cause& cause = cause_of(hypothesis.cause);
  Finding finding;
  finding.id = cause.id;
  finding.verdict = verdict_of(hypothesis.likelihood);
  finding.title = cause.title;
  finding.seen = line_text(diagnosed.first, diagnosed.num_lines) + ranks_text(diagnosed.ranks);
  if (!hypothesis.because.empty()) finding.seen += "\n" + hypothesis.because;
  finding.why = cause.why;
  finding.fix = cause.fix;
  if (finding.id == "ferry.error") finding.fix = advice_in(hypothesis.because);
  if (!hypothesis.decides.empty()) finding.fix += "\nto be sure: " + hypothesis.decides;
  finding.doc = fmt::format("docs/troubleshooting.md#{}", anchor_of(cause.id));
  return finding;
}

std::string format_diagnosis(const Diagnosis& diagnosis, bool is_colored) {
  std::vector<Finding> findings;
  for (const DiagnosedCause& cause : diagnosis.causes) findings.push_back(finding_of(cause));
  std::string out;
  if (!findings.empty()) out = format_findings(findings, {.is_colored = is_colored});
  return out + tail_lines(diagnosis);
}

nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis) {
  std::vector<Finding> findings;
  for (const DiagnosedCause& cause : diagnosis.causes) findings.push_back(finding_of(cause));
  nlohmann::ordered_json json = findings_json(findings, "ferry.diagnose/1", this_host());
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const DiagnosedCause& cause = diagnosis.causes[i];
    nlohmann::ordered_json& entry = json["findings"][i];
    entry["likelihood"] = likelihood_name(cause.hypothesis.likelihood);
    entry["because"] = cause.hypothesis.because;
    entry["decides"] = cause.hypothesis.decides;
    entry["source"] = cause.first.source;
    entry["line"] = cause.first.line;
    entry["num_lines"] = cause.num_lines;
    entry["ranks"] = cause.ranks;
    entry["reported"] = cause_of(cause.hypothesis.cause).reported;
  }
  json["secondary"] = nlohmann::ordered_json::array();
  for (const SecondaryError& error : diagnosis.secondary)
    json["secondary"].push_back({{"source", error.first.source},
                                 {"line", error.first.line},
                                 {"text", error.first.text},
                                 {"num_lines", error.num_lines}});
  json["lines"] = diagnosis.size.lines;
  json["bytes"] = diagnosis.size.bytes;
  json["logs"] = diagnosis.num_sources;
  return json;
}

}  // namespace ferry::ops
