#include "topo/hca_mapping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace ferry::topo {

namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

template <typename Call>
std::string message_of(const Call& call) {
  const auto error = capture_error(call);
  return error ? error->what() : "no error";
}

}  // namespace

TEST(HcaMapping, SplitsAtTheFirstColonOnly) {
  EXPECT_THAT(parse_hca_mapping("0:mlx5_0:1,1:mlx5_1,7:mlx5_9:1:2"),
              UnorderedElementsAre(Pair(0, "mlx5_0:1"), Pair(1, "mlx5_1"), Pair(7, "mlx5_9:1:2")));
}

TEST(HcaMapping, ReadsIdsAsPythonDoes) {
  EXPECT_THAT(parse_hca_mapping(" 1 :a,+2:b,-3:c,1_0:d"),
              UnorderedElementsAre(Pair(1, "a"), Pair(2, "b"), Pair(-3, "c"), Pair(10, "d")));
}

TEST(HcaMapping, KeepsBlanksOfTheNicAndTheLastOfDuplicates) {
  EXPECT_THAT(parse_hca_mapping("0:a,0: b "), UnorderedElementsAre(Pair(0, " b ")));
}

TEST(HcaMapping, RefusesAnEntryWithoutColonOrNumber) {
  EXPECT_EQ(message_of([] { static_cast<void>(parse_hca_mapping("0:a,")); }),
            "DEEP_EP_DEVICE_TO_HCA_MAPPING has the entry '', expected DEVICE:HCA[:PORT] such as "
            "0:mlx5_0:1; try: ferry topo --format mapping");
  EXPECT_EQ(message_of([] { static_cast<void>(parse_hca_mapping("gpu0:a")); }),
            "DEEP_EP_DEVICE_TO_HCA_MAPPING has the entry 'gpu0:a' whose device 'gpu0' is no whole "
            "number; try: ferry topo --format mapping");
  for (const char* bad : {"1__0:a", "_1:a", "1_:a", "99999999999:a", ":a", "- 1:a"})
    EXPECT_THROW(static_cast<void>(parse_hca_mapping(bad)), Error) << bad;
}

TEST(HcaMapping, GoesThroughCudaVisibleDevices) {
  const HcaMapping mapping = parse_hca_mapping("0:a,5:b");

  EXPECT_EQ(hca_of_device(mapping, 0, std::nullopt), "a");
  EXPECT_EQ(hca_of_device(mapping, 1, "0,5"), "b");
  EXPECT_EQ(message_of([&] { static_cast<void>(hca_of_device(mapping, 1, "0,4")); }),
            "DEEP_EP_DEVICE_TO_HCA_MAPPING='0:a,5:b' has no NIC for CUDA device 4; "
            "try: ferry topo --format mapping");
  EXPECT_EQ(message_of([&] { static_cast<void>(hca_of_device(mapping, 2, "0,5")); }),
            "CUDA device 2 is not among the 2 entries of CUDA_VISIBLE_DEVICES='0,5'");
  EXPECT_EQ(message_of([&] { static_cast<void>(hca_of_device(mapping, 1, "0, 5")); }),
            "entry 1 of CUDA_VISIBLE_DEVICES='0, 5' is ' 5', expected digits only: the mapping of "
            "GPUs to NICs knows neither UUIDs nor MIG names");
  EXPECT_THROW(static_cast<void>(hca_of_device(mapping, 0, "")), Error);
}

TEST(HcaPort, HasAPortAndACountOrNeither) {
  EXPECT_EQ(parse_hca_port("mlx5_0"), (HcaPort{"mlx5_0", {}, {}}));
  EXPECT_EQ(parse_hca_port("mlx5_0:1:2"), (HcaPort{"mlx5_0", 1, 2}));
  for (const char* bad : {"", ":1", "a:0", "a:x", "a:1:2:3", "a:"})
    EXPECT_EQ(parse_hca_port(bad), std::nullopt) << bad;
}

}  // namespace ferry::topo
