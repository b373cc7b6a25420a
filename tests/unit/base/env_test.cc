#include "base/env.hpp"

#include <gmock/gmock.h>

#include <map>

#include "ferry/error.hpp"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Variables = std::map<std::string, std::string, std::less<>>;

Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string error_of(const Variables& variables) {
  try {
    (void)parse_env(lookup_in(variables));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

EnvLine line_of(const std::string& name, const Variables& variables) {
  for (const EnvLine& line : explain_env(lookup_in(variables))) {
    if (line.name == name) return line;
  }
  ADD_FAILURE() << "no line for " << name;
  return {};
}

TEST(Env, HasTheDefaultsOfItsStructWhereNothingIsSet) {
  const Env parsed = parse_env(lookup_in({}));
  const Env defaults{};

  EXPECT_EQ(parsed.rank, std::nullopt);
  EXPECT_EQ(parsed.size, std::nullopt);
  EXPECT_EQ(parsed.address, "");
  EXPECT_EQ(parsed.port, std::nullopt);
  EXPECT_EQ(parsed.interface, "");
  EXPECT_EQ(parsed.secret_file, "");
  EXPECT_EQ(parsed.secret, "");
  EXPECT_EQ(parsed.insecure, defaults.insecure);
  EXPECT_EQ(parsed.nodes, defaults.nodes);
  EXPECT_EQ(parsed.arrival_timeout, defaults.arrival_timeout);
  EXPECT_EQ(parsed.progress_timeout, defaults.progress_timeout);
  EXPECT_EQ(parsed.meeting_timeout, defaults.meeting_timeout);
  EXPECT_EQ(parsed.late_warning, defaults.late_warning);
  EXPECT_EQ(parsed.log_level, defaults.log_level);
  EXPECT_EQ(parsed.num_threads, defaults.num_threads);
  EXPECT_EQ(parsed.plugin_dir, "");
}

TEST(Env, ReadsEveryVariable) {
  const Env parsed = parse_env(lookup_in({{"FERRY_RANK", "3"},
                                          {"FERRY_SIZE", "8"},
                                          {"FERRY_ADDRESS", "unix:job"},
                                          {"FERRY_PORT", "29501"},
                                          {"FERRY_INTERFACE", "eth0"},
                                          {"FERRY_SECRET_FILE", "/tmp/s"},
                                          {"FERRY_SECRET", "hush"},
                                          {"FERRY_INSECURE", "1"},
                                          {"FERRY_NODES", "2"},
                                          {"FERRY_TIMEOUT_MS", "1"},
                                          {"FERRY_PROGRESS_TIMEOUT_MS", "2"},
                                          {"FERRY_MEETING_TIMEOUT_MS", "3"},
                                          {"FERRY_LATE_WARNING_MS", "4"},
                                          {"FERRY_LOG", "trace"},
                                          {"FERRY_THREADS", "5"},
                                          {"FERRY_PLUGIN_DIR", "/opt/ferry"}}));

  EXPECT_EQ(parsed.rank, 3);
  EXPECT_EQ(parsed.size, 8);
  EXPECT_EQ(parsed.address, "unix:job");
  EXPECT_EQ(parsed.port, 29501);
  EXPECT_EQ(parsed.interface, "eth0");
  EXPECT_EQ(parsed.secret_file, "/tmp/s");
  EXPECT_EQ(parsed.secret, "hush");
  EXPECT_TRUE(parsed.insecure);
  EXPECT_EQ(parsed.nodes, 2);
  EXPECT_EQ(parsed.arrival_timeout, std::chrono::milliseconds(1));
  EXPECT_EQ(parsed.progress_timeout, std::chrono::milliseconds(2));
  EXPECT_EQ(parsed.meeting_timeout, std::chrono::milliseconds(3));
  EXPECT_EQ(parsed.late_warning, std::chrono::milliseconds(4));
  EXPECT_EQ(parsed.log_level, LogLevel::kTrace);
  EXPECT_EQ(parsed.num_threads, 5);
  EXPECT_EQ(parsed.plugin_dir, "/opt/ferry");
}

TEST(Env, RejectsAMalformedValueNamingVariableValueAndForm) {
  EXPECT_EQ(error_of({{"FERRY_TIMEOUT_MS", "30s"}}),
            "FERRY_TIMEOUT_MS='30s' is not a whole number of milliseconds from 1 to 604800000");
  EXPECT_EQ(error_of({{"FERRY_RANK", "-1"}}),
            "FERRY_RANK='-1' is not a whole number from 0 to 4095");
  EXPECT_EQ(error_of({{"FERRY_SIZE", "0"}}), "FERRY_SIZE='0' is not a whole number from 1 to 4096");
  EXPECT_EQ(error_of({{"FERRY_PORT", "65536"}}),
            "FERRY_PORT='65536' is not a whole number from 1 to 65535");
  EXPECT_EQ(error_of({{"FERRY_INSECURE", "yes"}}), "FERRY_INSECURE='yes' is not 0 or 1");
  EXPECT_EQ(error_of({{"FERRY_LOG", "loud"}}),
            "FERRY_LOG='loud' is not one of off, error, warn, info, debug, trace");
}

TEST(Env, TakesAWholeNumberOnlyInItsPlainForm) {
  for (const char* value : {"", " 1", "1 ", "+1", "0x1", "1.0", "1e2", "99999999999999999999"}) {
    EXPECT_THAT(error_of({{"FERRY_THREADS", value}}),
                HasSubstr(std::string("FERRY_THREADS='") + value + "' is not a whole number"));
  }
}

TEST(Env, NeverPrintsASecret) {
  const EnvLine line = line_of("FERRY_SECRET", {{"FERRY_SECRET", "hush-hush"}});

  EXPECT_EQ(line.value, "(set)");
  EXPECT_EQ(line.source, "environment");
  for (const EnvLine& other : explain_env(lookup_in({{"FERRY_SECRET", "hush-hush"}}))) {
    EXPECT_THAT(other.value, Not(HasSubstr("hush-hush")));
  }
}

TEST(Env, ExplainsValueAndSource) {
  const Variables variables{{"FERRY_LOG", "info"}};

  EXPECT_EQ(line_of("FERRY_LOG", variables).value, "info");
  EXPECT_EQ(line_of("FERRY_LOG", variables).source, "environment");
  EXPECT_EQ(line_of("FERRY_LOG", variables).fallback, "warn");
  EXPECT_EQ(line_of("FERRY_TIMEOUT_MS", variables).value, "300000");
  EXPECT_EQ(line_of("FERRY_TIMEOUT_MS", variables).source, "default");
}

TEST(Env, ExplainsAMalformedValueInsteadOfFailing) {
  EXPECT_EQ(line_of("FERRY_NODES", {{"FERRY_NODES", "two"}}).value,
            "malformed: FERRY_NODES='two' is not a whole number from 1 to 4096");
}

TEST(ChildEnvironment, PutsChangesInPlaceOfThisProcesssOwn) {
  const std::vector<std::string> own = child_environment({});
  ASSERT_FALSE(own.empty());
  const std::string name = own[0].substr(0, own[0].find('='));
  const std::vector<Variable> changes = {{name, "changed"}, {"FERRY_CHILD_TEST", "added"}};

  const std::vector<std::string> entries = child_environment(changes);

  EXPECT_EQ(entries.size(), own.size() + 1);
  EXPECT_THAT(entries,
              testing::IsSupersetOf({name + "=changed", std::string("FERRY_CHILD_TEST=added")}));
  EXPECT_THAT(entries, Not(testing::Contains(own[0])));
}

TEST(Env, HasOneMarkdownRowPerVariable) {
  const std::string text = env_table_markdown();

  for (const EnvLine& line : explain_env(lookup_in({}))) {
    EXPECT_THAT(text, HasSubstr("| `" + line.name + "` |"));
    EXPECT_FALSE(line.help.empty());
  }
}

TEST(Env, WarnsOfAnUnknownNameWithTheNearestKnownOne) {
  EXPECT_THAT(
      unknown_env_warnings({"PATH", "FERRY_LOG", "FERRY_TIMEOT_MS", "FERRY_SECRETFILE"}),
      ElementsAre("environment variable 'FERRY_TIMEOT_MS' is not known; try: FERRY_TIMEOUT_MS",
                  "environment variable 'FERRY_SECRETFILE' is not known; try: FERRY_SECRET_FILE"));
}

TEST(Env, LeavesOtherProgramsVariablesAlone) {
  EXPECT_THAT(unknown_env_warnings({"FERRYBOAT", "ferry_log", "", "XFERRY_LOG"}), IsEmpty());
}

TEST(Env, WarnsOfAHugeNameWithoutMuchWork) {
  EXPECT_EQ(unknown_env_warnings({"FERRY_" + std::string(1 << 20, 'X')}).size(), 1u);
}

}  // namespace
}  // namespace ferry
