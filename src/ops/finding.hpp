#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ferry::ops {

// What a check makes of the facts. kUnknown: the facts do not say, and `fix` says how to find out.
enum class Verdict { kOk, kWarn, kFail, kUnknown, kNotApplicable };

// "ok", "warn", "fail", "unknown", "not-applicable": as in JSON and on the screen.
[[nodiscard]] const char* verdict_name(Verdict verdict) noexcept;

// One judgement, by a doctor's check, a pattern of a log or an inequality of the planner.
struct Finding {
  std::string id{};  // stable: "peermem.loaded"
  Verdict verdict = Verdict::kUnknown;
  std::string title{};  // what was judged, in a few words
  std::string seen{};   // values, and the files they came from
  std::string why{};    // why it matters
  std::string fix{};    // a command or an edit; empty where nothing is to be done
  std::string doc{};    // "docs/checks.md#peermem.loaded"
};

// Exit code 1 is due: at least one verdict is kFail.
[[nodiscard]] bool has_failure(const std::vector<Finding>& findings) noexcept;

struct TableOptions {
  bool is_complete = false;  // also what is ok or not applicable, else those are only counted
  bool is_colored = false;
};

// For people: fail first, then warn, unknown, ok; one block each, and a line that counts them.
// Control characters are shown as \xNN, so that text from a file cannot drive the terminal.
[[nodiscard]] std::string format_findings(const std::vector<Finding>& findings,
                                          const TableOptions& options);

// For machines: {schema, ferry_version, host, threads, findings: [{id, verdict, title, ...}]}, the
// form that doctor, diagnose and plan share. `schema` is such as "ferry.doctor/1".
[[nodiscard]] nlohmann::ordered_json findings_json(const std::vector<Finding>& findings,
                                                   const std::string& schema,
                                                   const std::string& host);

// {schema, ferry_version, host, threads}: what every JSON object of the tool begins with. Bytes
// that are no UTF-8 are replaced when the object is printed by print_json.
[[nodiscard]] nlohmann::ordered_json json_preamble(const std::string& schema,
                                                   const std::string& host);
[[nodiscard]] std::string print_json(const nlohmann::ordered_json& json);

// The name of this machine, as the kernel has it.
[[nodiscard]] std::string this_host();

// `text` with control characters (but line feeds, where `keep_lines`) and bytes that are no UTF-8
// written as \xNN.
[[nodiscard]] std::string escape_controls(const std::string& text, bool keep_lines = false);

}  // namespace ferry::ops
