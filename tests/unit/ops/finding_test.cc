#include "ops/finding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ferry::ops {

namespace {

std::vector<Finding> two_findings() {
  return {{.id = "shm.size", .verdict = Verdict::kOk, .title = "/dev/shm", .seen = "64 GiB"},
          {.id = "peermem.loaded",
           .verdict = Verdict::kFail,
           .title = "nvidia_peermem",
           .seen = "absent\x1b[2J",
           .why = "no path from the NIC to GPU memory",
           .fix = "modprobe nvidia_peermem",
           .doc = "docs/checks.md#peermem.loaded"}};
}

}  // namespace

TEST(Findings, AreShownWorstFirstWithControlCharactersEscaped) {
  EXPECT_EQ(format_findings(two_findings(), {.is_complete = true}),
            "fail            peermem.loaded: nvidia_peermem\n"
            "    seen  absent\\x1b[2J\n"
            "    why   no path from the NIC to GPU memory\n"
            "    fix   modprobe nvidia_peermem\n"
            "    doc   docs/checks.md#peermem.loaded\n"
            "ok              shm.size: /dev/shm\n"
            "    seen  64 GiB\n"
            "1 fail, 1 ok\n");
}

TEST(Findings, ThatAreFineAreOnlyCountedByDefault) {
  EXPECT_THAT(format_findings(two_findings(), {}),
              testing::AllOf(testing::Not(testing::HasSubstr("shm.size")),
                             testing::EndsWith("1 fail, 1 ok\n")));
}

TEST(Findings, FailOnlyByAFailure) {
  std::vector<Finding> findings = two_findings();
  EXPECT_TRUE(has_failure(findings));
  findings[1].verdict = Verdict::kWarn;
  EXPECT_FALSE(has_failure(findings));
}

TEST(Findings, HaveTheFieldsOfTheDesignAsJson) {
  const nlohmann::ordered_json json = findings_json(two_findings(), "ferry.doctor/1", "node1");

  EXPECT_EQ(json["schema"], "ferry.doctor/1");
  EXPECT_EQ(json["host"], "node1");
  EXPECT_TRUE(json["threads"].is_number());
  EXPECT_EQ(json["findings"][1]["verdict"], "fail");
  EXPECT_EQ(json["findings"][1].size(), 7U);
}

}  // namespace ferry::ops
