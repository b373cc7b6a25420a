// The logs of tests/ops/data/diagnose_cases.yaml, each with a look-alike.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "ops/diagnose/causes.hpp"
#include "ops/diagnose/diagnosis.hpp"
#include "ops/facts/facts_json.hpp"

namespace ferry::ops {
namespace {

// YAML's flow mappings are JSON but for unquoted words: read as a tree and written as JSON.
nlohmann::json to_json(const YAML::Node& node) {
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& entry : node) object[entry.first.as<std::string>()] = to_json(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& entry : node) list.push_back(to_json(entry));
    return list;
  }
  const auto word = node.as<std::string>();
  if (node.Tag() == "!") return word;  // quoted
  const nlohmann::json parsed = nlohmann::json::parse(word, nullptr, false);
  return parsed.is_discarded() ? nlohmann::json(word) : parsed;
}

std::optional<Facts> facts_of(const YAML::Node& node) {
  if (!node) return std::nullopt;
  const nlohmann::json json = {{"schema", kFactsSchema}, {"facts", to_json(node)}};
  return parse_facts(json.dump(), "the case's facts");
}

Diagnosis diagnose_text(const std::string& log, const YAML::Node& facts_node) {
  const std::optional<Facts> facts = facts_of(facts_node);
  Evidence evidence;
  std::istringstream stream(log);
  evidence.read(stream, "case.log");
  return diagnose(Clues(evidence, facts ? &*facts : nullptr));
}

std::vector<std::string> ids_of(const Diagnosis& diagnosis) {
  std::vector<std::string> ids;
  for (const DiagnosedCause& cause : diagnosis.causes) ids.push_back(cause.hypothesis.cause);
  return ids;
}

Likelihood parse_likelihood(const YAML::Node& node) {
  const auto word = node.as<std::string>("likely");
  if (word == "open") return Likelihood::kOpen;
  return word == "possible" ? Likelihood::kPossible : Likelihood::kLikely;
}

std::vector<std::string> list_of(const YAML::Node& node) {
  return node ? node.as<std::vector<std::string>>() : std::vector<std::string>();
}

YAML::Node load_cases() { return YAML::LoadFile(FERRY_OPS_DATA "/diagnose_cases.yaml"); }

class DiagnoseCases : public ::testing::Test {
 protected:
  // `prefix`: "" or "lookalike_".
  static void expect_first(const YAML::Node& entry,
                           const std::string& prefix,
                           const Diagnosis& seen) {
    const auto first = entry[prefix + "first"].as<std::string>();
    const std::string text = format_diagnosis(seen, false);
    if (first == "none") {
      const bool is_clean = std::none_of(
          seen.causes.begin(), seen.causes.end(),
          [](const auto& cause) { return cause.hypothesis.likelihood == Likelihood::kLikely; });
      EXPECT_TRUE(is_clean) << text;
      return;
    }
    ASSERT_FALSE(seen.causes.empty()) << text;
    EXPECT_EQ(seen.causes.front().hypothesis.cause, first) << text;
    EXPECT_EQ(seen.causes.front().hypothesis.likelihood,
              parse_likelihood(entry[prefix + "likelihood"]))
        << text;
  }
};

TEST_F(DiagnoseCases, FindTheCauseOfEachLog) {
  for (const YAML::Node& entry : load_cases()) {
    SCOPED_TRACE(entry["name"].as<std::string>());
    const Diagnosis seen = diagnose_text(entry["log"].as<std::string>(), entry["facts"]);
    expect_first(entry, "", seen);
    for (const std::string& id : list_of(entry["also"]))
      EXPECT_THAT(ids_of(seen), testing::Contains(id));
    for (const std::string& id : list_of(entry["not"]))
      EXPECT_THAT(ids_of(seen), testing::Not(testing::Contains(id)));
    for (const std::string& part : list_of(entry["secondary"]))
      EXPECT_TRUE(std::any_of(seen.secondary.begin(), seen.secondary.end(), [&](const auto& error) {
        return error.first.text.find(part) != std::string::npos;
      })) << part;
  }
}

TEST_F(DiagnoseCases, AreNotFooledByTheLookAlike) {
  for (const YAML::Node& entry : load_cases()) {
    SCOPED_TRACE(entry["name"].as<std::string>());
    const Diagnosis seen =
        diagnose_text(entry["lookalike"].as<std::string>(), entry["lookalike_facts"]);
    expect_first(entry, "lookalike_", seen);
    const auto first = entry["first"].as<std::string>();
    for (const DiagnosedCause& cause : seen.causes) {
      const bool is_first_again = cause.hypothesis.cause == first;
      EXPECT_FALSE(is_first_again && cause.hypothesis.likelihood == Likelihood::kLikely)
          << format_diagnosis(seen, false);
    }
  }
}

TEST_F(DiagnoseCases, ExerciseEveryPattern) {
  Evidence evidence;
  for (const YAML::Node& entry : load_cases())
    for (const char* field : {"log", "lookalike"}) {
      std::istringstream stream(entry[field].as<std::string>());
      evidence.read(stream, "case.log");
    }

  for (std::size_t row = 0; row < log_patterns().size(); ++row)
    EXPECT_GT(evidence.sightings()[row].count, 0) << log_patterns()[row].regex;
}

TEST_F(DiagnoseCases, ReachEveryCause) {
  std::set<std::string> reached;
  for (const YAML::Node& entry : load_cases())
    for (const std::string prefix : {"", "lookalike_"}) {
      const auto field = prefix.empty() ? std::string("log") : std::string("lookalike");
      for (const std::string& id :
           ids_of(diagnose_text(entry[field].as<std::string>(), entry[prefix + "facts"])))
        reached.insert(id);
    }

  for (const Cause& cause : log_causes()) EXPECT_TRUE(reached.contains(cause.id)) << cause.id;
}

}  // namespace
}  // namespace ferry::ops
