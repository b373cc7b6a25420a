#include "ops/facts/facts_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ferry::ops {

namespace {

std::string message_of(const std::string& text) {
  const auto error = capture_error([&] { static_cast<void>(parse_facts(text, "node1.json")); });
  return error ? error->what() : "no error";
}

}  // namespace

TEST(FactsJson, ReadsBackWhatItWrote) {
  Facts facts;
  facts.host.name = "node1";
  facts.host.kernel = "6.8.0";
  facts.host.vendor = Fact<std::string>::absent();
  facts.host.product = Fact<std::string>::unknown("Permission denied");
  facts.process.environment = {{"NCCL_IB_HCA", "mlx5"}};
  facts.gpus = std::vector<GpuFacts>{{.index = 0, .pci = "0000:8f:00.0", .name = "NVIDIA B200"}};
  HcaFacts hca;
  hca.name = "mlx5_0";
  hca.ports = {{.number = 1, .state = "ACTIVE", .rate_gbps = 400.0, .counters = {{"x", 7}}}};
  facts.hcas = std::vector<HcaFacts>{hca};

  const nlohmann::ordered_json json = facts_json(facts);
  const Facts again = parse_facts(json.dump(), "itself");

  EXPECT_EQ(facts_json(again).dump(), json.dump());
  EXPECT_TRUE(again.host.vendor.is_absent());
  EXPECT_EQ(again.host.product.reason(), "Permission denied");
  EXPECT_EQ(again.hca_list().at(0).ports.at(0).counters.at("x"), 7);
}

TEST(FactsJson, TakesWhatIsMissingForUnknownAndIgnoresWhatItDoesNotKnow) {
  const Facts facts = parse_facts(
      R"({"schema": "ferry.facts/1", "facts": {"future": 1, "host": {"name": "a"}}})", "a.json");

  EXPECT_EQ(facts.host.name, "a");
  EXPECT_TRUE(facts.host.kernel.is_unknown());
  EXPECT_EQ(facts.host.kernel.reason(), "not recorded");
  EXPECT_TRUE(facts.gpus.is_unknown());
}

TEST(FactsJson, NamesTheFileAndTheFieldOfAWrongType) {
  EXPECT_EQ(message_of(R"({"schema": "ferry.facts/1", "facts": {"hcas": [{"name": 3}]}})"),
            "node1.json: 'hcas[0].name' is of type number, expected string");
  EXPECT_EQ(message_of(R"({"schema": "ferry.facts/1", "facts": []})"),
            "node1.json: '' is of type array, expected object");
  EXPECT_EQ(message_of(R"({"schema": "ferry.facts/1",
                           "facts": {"host": {"num_cpus": 99999999999}}})"),
            "node1.json: 'host.num_cpus' is 99999999999, which does not fit into 32 bits");
}

TEST(FactsJson, RefusesAnotherSchemaAndNoJson) {
  EXPECT_EQ(message_of(R"({"schema": "ferry.facts/2", "facts": {}})"),
            "node1.json holds no facts, expected an object with \"schema\": \"ferry.facts/1\"; "
            "try: ferry facts");
  EXPECT_THAT(message_of("rubbish"), testing::HasSubstr("node1.json is not JSON: "));
}

}  // namespace ferry::ops
