#include "ops/finding.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "ferry/version.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

// In this order on the screen.
constexpr std::array kOrder = {Verdict::kFail, Verdict::kWarn, Verdict::kUnknown, Verdict::kOk,
                               Verdict::kNotApplicable};

const char* color_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "\x1b[32m";
    case Verdict::kWarn: return "\x1b[33m";
    case Verdict::kFail: return "\x1b[31m";
    case Verdict::kUnknown: return "\x1b[36m";
    case Verdict::kNotApplicable: return "\x1b[90m";
  }
  return "";
}

bool needs_attention(Verdict verdict) {
  return verdict != Verdict::kOk && verdict != Verdict::kNotApplicable;
}

// "  why  text", wrapped so that continuation lines stand below the text.
void append_part(std::string& out, const char* label, const std::string& text) {
  if (text.empty()) return;
  bool is_first = true;
  for (const std::string& line : split(escape_controls(text, true), '\n')) {
    for (const std::string& piece : wrap(line, 88)) {
      out += fmt::format("    {:<5} {}\n", is_first ? label : "", piece);
      is_first = false;
    }
  }
}

std::string format_finding(const Finding& finding, bool is_colored) {
  const std::string word = is_colored ? fmt::format("{}{:<14}\x1b[0m", color_of(finding.verdict),
                                                    verdict_name(finding.verdict))
                                      : fmt::format("{:<14}", verdict_name(finding.verdict));
  std::string out = fmt::format("{}  {}: {}\n", word, finding.id, escape_controls(finding.title));
  append_part(out, "seen", finding.seen);
  if (needs_attention(finding.verdict)) {
    append_part(out, "why", finding.why);
    append_part(out, "fix", finding.fix);
    append_part(out, "doc", finding.doc);
  }
  return out;
}

std::string count_line(const std::vector<Finding>& findings) {
  std::vector<std::string> counts;
  for (const Verdict verdict : kOrder) {
    const auto num = std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.verdict == verdict;
    });
    if (num > 0) counts.push_back(fmt::format("{} {}", num, verdict_name(verdict)));
  }
  return counts.empty() ? "nothing was judged\n" : join(counts, ", ") + "\n";
}

}  // namespace

const char* verdict_name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarn: return "warn";
    case Verdict::kFail: return "fail";
    case Verdict::kUnknown: return "unknown";
    case Verdict::kNotApplicable: return "not-applicable";
  }
  return "unknown";
}

bool has_failure(const std::vector<Finding>& findings) noexcept {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

std::string format_findings(const std::vector<Finding>& findings, const TableOptions& options) {
  std::string out;
  for (const Verdict verdict : kOrder) {
    if (!options.is_complete && !needs_attention(verdict)) continue;
    for (const Finding& finding : findings)
      if (finding.verdict == verdict) out += format_finding(finding, options.is_colored);
  }
  return out + count_line(findings);
}

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings,
                                     const std::string& schema,
                                     const std::string& host) {
  nlohmann::ordered_json json = json_preamble(schema, host);
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    json["findings"].push_back({{"id", finding.id},
                                {"verdict", verdict_name(finding.verdict)},
                                {"title", finding.title},
                                {"seen", finding.seen},
                                {"why", finding.why},
                                {"fix", finding.fix},
                                {"doc", finding.doc}});
  return json;
}

nlohmann::ordered_json json_preamble(const std::string& schema, const std::string& host) {
  return {{"schema", schema},
          {"ferry_version", version()},
          {"host", host},
          {"threads", std::thread::hardware_concurrency()}};
}

std::string print_json(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string this_host() {
  std::array<char, 256> host{};
  static_cast<void>(::gethostname(host.data(), host.size() - 1));
  return host.data();
}

}  // namespace ferry::ops
