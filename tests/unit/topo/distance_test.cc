#include "topo/distance.hpp"

#include <gtest/gtest.h>

namespace ferry::topo {

namespace {

// Root port 0000:00:01.0, a switch (upstream 01, downstream ports on bus 02), devices on 03 and 04.
const PciPlace kGpu{{"0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}, 0};
const PciPlace kNic{{"0000:00:01.0", "0000:01:00.0", "0000:02:01.0", "0000:04:00.0"}, 0};

}  // namespace

TEST(Distance, IsPixBelowOneSwitch) { EXPECT_EQ(distance_between(kGpu, kNic), Distance::kPix); }

TEST(Distance, IsPxbAcrossSwitchesOfOneRootPort) {
  const PciPlace behind_another{{"0000:00:01.0", "0000:09:00.0", "0000:0a:00.0", "0000:0b:00.0"},
                                0};

  EXPECT_EQ(distance_between(kGpu, behind_another), Distance::kPxb);
}

TEST(Distance, IsPhbAcrossRootPortsOfOneComplex) {
  EXPECT_EQ(distance_between(kGpu, {{"0000:00:02.0", "0000:10:00.0"}, 0}), Distance::kPhb);
}

TEST(Distance, GoesByTheNumaNodeAcrossComplexes) {
  EXPECT_EQ(distance_between(kGpu, {{"0000:40:01.0", "0000:41:00.0"}, 0}), Distance::kNode);
  EXPECT_EQ(distance_between(kGpu, {{"0000:80:01.0", "0000:81:00.0"}, 1}), Distance::kSys);
}

// In a virtual machine each device may have a PCI domain of its own: paths say nothing.
TEST(Distance, GoesByTheNumaNodeWhereEachDeviceHasADomain) {
  EXPECT_EQ(distance_between({{"0001:00:00.0"}, 0}, {{"0101:00:00.0"}, 0}), Distance::kNode);
  EXPECT_EQ(distance_between({{"0001:00:00.0"}, 0}, {{"0101:00:00.0"}, 1}), Distance::kSys);
  EXPECT_EQ(distance_between({{"0001:00:00.0"}, {}}, {{"0101:00:00.0"}, {}}), Distance::kNode);
}

}  // namespace ferry::topo
