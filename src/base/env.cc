#include "base/env.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <variant>

#include "base/error.hpp"

namespace ferry {

namespace {

constexpr std::int64_t kMaxRanks = 4096;
constexpr std::int64_t kMaxMilliseconds = 7LL * 24 * 3600 * 1000;

using Field = std::variant<std::optional<int> Env::*,
                           int Env::*,
                           std::string Env::*,
                           bool Env::*,
                           std::chrono::milliseconds Env::*,
                           LogLevel Env::*>;

struct EnvRow {
  const char* name;
  Field field;
  const char* fallback;  // empty: not set
  const char* help;
  std::int64_t min = 0;  // numbers only
  std::int64_t max = 0;
  bool is_secret = false;
};

const EnvRow kRows[] = {
    {"FERRY_RANK", &Env::rank, "",
     "this process's rank; with FERRY_SIZE and FERRY_ADDRESS it takes the place of a launcher", 0,
     kMaxRanks - 1},
    {"FERRY_SIZE", &Env::size, "", "number of ranks of the group", 1, kMaxRanks},
    {"FERRY_ADDRESS", &Env::address, "",
     "where the ranks meet: unix:NAME on one host, HOST:PORT (a host of rank 0) on several"},
    {"FERRY_PORT", &Env::port, "",
     "TCP port of the meeting where a launcher names only the host; under torchrun MASTER_PORT + 1 "
     "unless set",
     1, 65535},
    {"FERRY_INTERFACE", &Env::interface, "",
     "network interface or local address that the meeting binds; unless set, the one that owns the "
     "meeting's host address"},
    {"FERRY_SECRET_FILE", &Env::secret_file, "",
     "file with the secret that ranks on several hosts share; must be yours and mode 0600"},
    {"FERRY_SECRET", &Env::secret, "", "the secret itself; FERRY_SECRET_FILE wins", 0, 0, true},
    {"FERRY_INSECURE", &Env::insecure, "0", "1 lets ranks on several hosts meet without a secret"},
    {"FERRY_NODES", &Env::nodes, "1", "splits the ranks of one host into this many pretended nodes",
     1, kMaxRanks},
    {"FERRY_TIMEOUT_MS", &Env::arrival_timeout, "300000",
     "longest wait for a rank that has not reached an operation, in milliseconds", 1,
     kMaxMilliseconds},
    {"FERRY_PROGRESS_TIMEOUT_MS", &Env::progress_timeout, "10000",
     "longest wait for a rank that reached an operation and stopped moving, in milliseconds", 1,
     kMaxMilliseconds},
    {"FERRY_MEETING_TIMEOUT_MS", &Env::meeting_timeout, "300000",
     "longest wait until all ranks have joined, in milliseconds", 1, kMaxMilliseconds},
    {"FERRY_LATE_WARNING_MS", &Env::late_warning, "10000",
     "a rank this late is named in one warning, in milliseconds", 1, kMaxMilliseconds},
    {"FERRY_LOG", &Env::log_level, "warn",
     "off, error, warn, info, debug or trace; lines go to stderr"},
    {"FERRY_THREADS", &Env::num_threads, "0",
     "threads per rank of the CPU engine; 0 shares the usable cores among the ranks of the host", 0,
     1024},
    {"FERRY_PLUGIN_DIR", &Env::plugin_dir, "",
     "absolute folder of engine and network plugins; unless set, the library's own folder"},
    {"FERRY_EXPAND", &Env::expand, "",
     "CUDA engine, rows for several experts of a rank: 1 sends them once and the receiver copies, "
     "0 "
     "writes each directly; unless set, 1 where ranks have GPUs of their own. On one rank is on "
     "all",
     0, 1},
};

constexpr const char* kLogLevels[] = {"off", "error", "warn", "info", "debug", "trace"};

[[noreturn]] void throw_malformed(const EnvRow& row,
                                  const std::string& value,
                                  std::string_view accepted) {
  FERRY_THROW(ErrorCode::kInvalidArgument, "{}='{}' is not {}", row.name,
              row.is_secret ? "(set)" : value, accepted);
}

std::int64_t parse_number(const EnvRow& row, const std::string& value, std::string_view unit) {
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, number);
  if (result.ec != std::errc{} || result.ptr != end || number < row.min || number > row.max) {
    throw_malformed(row, value,
                    fmt::format("a whole number{} from {} to {}", unit, row.min, row.max));
  }
  return number;
}

// One overload per type of field; each is given text that is present.
struct Assign {
  Env& env;
  const EnvRow& row;
  const std::string& value;

  void operator()(std::optional<int> Env::*field) const {
    env.*field = static_cast<int>(parse_number(row, value, ""));
  }
  void operator()(int Env::*field) const {
    env.*field = static_cast<int>(parse_number(row, value, ""));
  }
  void operator()(std::string Env::*field) const { env.*field = value; }
  void operator()(bool Env::*field) const {
    if (value != "0" && value != "1") throw_malformed(row, value, "0 or 1");
    env.*field = value == "1";
  }
  void operator()(std::chrono::milliseconds Env::*field) const {
    env.*field = std::chrono::milliseconds(parse_number(row, value, " of milliseconds"));
  }
  void operator()(LogLevel Env::*field) const {
    const auto* found = std::find(std::begin(kLogLevels), std::end(kLogLevels), value);
    if (found == std::end(kLogLevels)) {
      throw_malformed(row, value, "one of off, error, warn, info, debug, trace");
    }
    env.*field = static_cast<LogLevel>(found - std::begin(kLogLevels));
  }
};

void assign(Env& env, const EnvRow& row, const std::optional<std::string>& given) {
  const std::string value = given.value_or(row.fallback);
  if (!given && value.empty()) return;
  std::visit(Assign{env, row, value}, row.field);
}

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

// Quadratic work on text from outside needs a bound.
constexpr std::size_t kMaxNameBytes = 128;

const char* nearest_name(std::string_view name) {
  const std::string_view start = name.substr(0, kMaxNameBytes);
  return std::min_element(std::begin(kRows), std::end(kRows),
                          [start](const EnvRow& a, const EnvRow& b) {
                            return edit_distance(start, a.name) < edit_distance(start, b.name);
                          })
      ->name;
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::vector<std::string> names_of_this_process() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    names.emplace_back(name_of(*entry));
  return names;
}

}  // namespace

Lookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

std::vector<std::string> child_environment(std::span<const Variable> changes) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : changes) entries.push_back(fmt::format("{}={}", name, value));
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const bool is_changed =
        std::any_of(changes.begin(), changes.end(),
                    [&](const Variable& change) { return change.first == name_of(*entry); });
    if (!is_changed) entries.emplace_back(*entry);
  }
  return entries;
}

Env parse_env(const Lookup& lookup) {
  Env env{};
  for (const EnvRow& row : kRows) assign(env, row, lookup(row.name));
  return env;
}

const Env& env() {
  static const Env parsed = [] {
    Env result = parse_env(process_environment());
    set_log_level(result.log_level);
    for (const std::string& warning : unknown_env_warnings(names_of_this_process())) {
      FERRY_WARN("base.env", "{}", warning);
    }
    return result;
  }();
  return parsed;
}

std::vector<EnvLine> explain_env(const Lookup& lookup) {
  std::vector<EnvLine> lines;
  for (const EnvRow& row : kRows) {
    const std::optional<std::string> given = lookup(row.name);
    std::string value = given.value_or(row.fallback);
    if (row.is_secret && !value.empty()) value = "(set)";
    try {
      Env scratch{};
      assign(scratch, row, given);
    } catch (const Error& error) {
      value = fmt::format("malformed: {}", error.what());
    }
    lines.push_back({row.name, value, given ? "environment" : "default", row.fallback, row.help});
  }
  return lines;
}

std::string env_table_markdown() {
  std::string text =
      "# Environment variables\n"
      "\n"
      "Made from the table in `src/base/env.cc`; do not edit. Options given in code win over the\n"
      "environment. A variable that is absent has its default; one that is malformed is an error;\n"
      "an unknown `FERRY_` name is a warning. `ferry env --explain` prints what is in force.\n"
      "\n"
      "| variable | default | meaning |\n"
      "|---|---|---|\n";
  for (const EnvRow& row : kRows) {
    const std::string fallback = *row.fallback ? fmt::format("`{}`", row.fallback) : "not set";
    text += fmt::format("| `{}` | {} | {} |\n", row.name, fallback, row.help);
  }
  return text;
}

std::vector<std::string> unknown_env_warnings(
    const std::vector<std::string>& names_in_environment) {
  constexpr std::string_view kPrefix = "FERRY_";
  std::vector<std::string> warnings;
  for (const std::string& name : names_in_environment) {
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    const bool is_known = std::any_of(std::begin(kRows), std::end(kRows),
                                      [&](const EnvRow& row) { return name == row.name; });
    if (is_known) continue;
    warnings.push_back(
        fmt::format("environment variable '{}' is not known; try: {}", name, nearest_name(name)));
  }
  return warnings;
}

}  // namespace ferry
