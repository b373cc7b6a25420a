#include "ops/diagnose/diagnosis.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "ops/diagnose/causes.hpp"

namespace ferry::ops {
namespace {

Diagnosis diagnose_log(const std::string& log) {
  Evidence evidence;
  std::istringstream stream(log);
  evidence.read(stream, "a.log");
  return diagnose(Clues(evidence, nullptr));
}

TEST(Diagnosis, PutsTheEarliestCauseFirst) {
  const Diagnosis diagnosis = diagnose_log(
      "No socket interface found\n"
      "pidfd_getfd: Operation not permitted\n");

  ASSERT_EQ(diagnosis.causes.size(), 2u);
  EXPECT_EQ(diagnosis.causes[0].hypothesis.cause, "boot.no-interface");
  EXPECT_EQ(diagnosis.causes[1].hypothesis.cause, "container.pidfd");
}

TEST(Diagnosis, SaysWhatItSawAndWhatToDo) {
  const std::string text = format_diagnosis(
      diagnose_log("[rank3]: No socket interface found\n[rank3]: Broken pipe\n"), false);

  EXPECT_EQ(text,
            "fail            boot.no-interface: the bootstrap's network interface does not exist\n"
            "    seen  a.log:1: [rank3]: No socket interface found, rank 3\n"
            "    why   NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME names an interface that this host has "
            "not, or the\n"
            "          family (IPv4, IPv6) has no address\n"
            "    fix   ip -brief address; then set NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME, and on IPv6\n"
            "          NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=AF_INET6\n"
            "    doc   docs/troubleshooting.md#bootno-interface\n"
            "1 fail\n"
            "secondary errors, which follow from the above:\n"
            "    a.log:2: [rank3]: Broken pipe\n"
            "read 2 lines of 1 log\n");
}

TEST(Diagnosis, ShowsTheEarliestComplaintWhereItKnowsNothing) {
  const Diagnosis diagnosis = diagnose_log("fine\nFATAL: the dog ate it\nerror again\n");

  EXPECT_TRUE(diagnosis.causes.empty());
  EXPECT_EQ(format_diagnosis(diagnosis, false),
            "no known problem; the earliest line that speaks of an error:\n"
            "    a.log:2: FATAL: the dog ate it\n"
            "read 3 lines of 1 log\n");
}

TEST(Diagnosis, NeverPrintsControlCharactersOfALog) {
  const std::string text =
      format_diagnosis(diagnose_log("\x9b"
                                    "31m pidfd_getfd: operation not permitted \xc2\x9b\n"),
                       false);

  for (const char byte : text)
    EXPECT_TRUE(byte == '\n' || (byte >= ' ' && byte != 0x7f)) << static_cast<int>(byte);
}

TEST(Diagnosis, IsTheSameAsJson) {
  const nlohmann::ordered_json json =
      diagnosis_json(diagnose_log("[rank3]: No socket interface found\n"));

  EXPECT_EQ(json["schema"], "ferry.diagnose/1");
  EXPECT_EQ(json["findings"][0]["id"], "boot.no-interface");
  EXPECT_EQ(json["findings"][0]["verdict"], "fail");
  EXPECT_EQ(json["findings"][0]["likelihood"], "likely");
  EXPECT_EQ(json["findings"][0]["ranks"], nlohmann::json({3}));
}

TEST(Diagnosis, TakesFerrysOwnAdviceOver) {
  const Diagnosis diagnosis = diagnose_log("ferry error cli: no GPU here; try: ferry doctor\n");

  ASSERT_EQ(diagnosis.causes.size(), 1u);
  EXPECT_EQ(finding_of(diagnosis.causes[0]).fix, "ferry doctor");
}

}  // namespace
}  // namespace ferry::ops
