#include "ops/diagnose/command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "ops/diagnose/causes.hpp"
#include "ops/diagnose/clues.hpp"
#include "ops/diagnose/diagnosis.hpp"
#include "ops/facts/source.hpp"

namespace ferry::ops {

namespace {

void read_source(Evidence& evidence, const std::string& path) {
  if (path == "-") {
    evidence.read(std::cin, "-");
    return;
  }
  FERRY_CHECK(!std::filesystem::is_directory(path), ErrorCode::kInvalidArgument,
              "cannot read the log '{}': it is a folder; try: ferry diagnose {}/*", path, path);
  std::ifstream file(path, std::ios::binary);
  FERRY_CHECK(file.is_open(), ErrorCode::kInvalidArgument, "cannot read the log '{}': {}", path,
              errno_text(errno));
  evidence.read(file, path);
}

}  // namespace

int run_diagnose(const DiagnoseOptions& options) {
  if (options.is_causes) {
    fmt::print("{}", causes_markdown());
    return 0;
  }
  std::optional<Facts> facts;
  if (!options.facts.empty()) facts = load_facts({.files = {options.facts}});
  Evidence evidence;
  if (options.logs.empty()) read_source(evidence, "-");
  for (const std::string& log : options.logs) read_source(evidence, log);
  const Diagnosis diagnosis = diagnose(Clues(evidence, facts ? &*facts : nullptr));
  if (options.is_json)
    fmt::print("{}", print_json(diagnosis_json(diagnosis)));
  else
    fmt::print("{}", format_diagnosis(diagnosis, ::isatty(STDOUT_FILENO) == 1));
  return diagnosis.causes.empty() ? 0 : 1;
}

std::string causes_markdown() {
  std::string out;
  for (const Cause& cause : log_causes()) {
    out += fmt::format("### {}\n\n{}: {}.\n", cause.id, cause.title, cause.why);
    if (*cause.fix != '\0') out += fmt::format("Fix: {}.\n", cause.fix);
    out += fmt::format("Seen in: {}.\n\n", cause.reported);
  }
  return out;
}

}  // namespace ferry::ops
