#include "boot/host_list.hpp"

#include <gmock/gmock.h>

#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using testing::ElementsAre;

TEST(HostList, ExpandsBrackets) {
  EXPECT_THAT(expand_host_list("node1"), ElementsAre("node1"));
  EXPECT_THAT(expand_host_list("node[01-03,7],gpu5"),
              ElementsAre("node01", "node02", "node03", "node7", "gpu5"));
  EXPECT_THAT(expand_host_list("a[9-11]"), ElementsAre("a9", "a10", "a11"));
  EXPECT_THAT(expand_host_list("r[1-2]n[3-4]x"), ElementsAre("r1n3x", "r1n4x", "r2n3x", "r2n4x"));
  EXPECT_THAT(expand_host_list("[1-2].example.org"), ElementsAre("1.example.org", "2.example.org"));
}

TEST(HostList, RejectsWhatIsNone) {
  for (const char* text : {"", ",", "a,", "a[", "a]", "a[]", "a[1", "a[1-]", "a[-1]", "a[2-1]",
                           "a[1,]", "a[x]", "a[1-2-3]", "a[[1]]", "a b", "a[1234567890]"}) {
    EXPECT_EQ(test::error_of([&] { (void)expand_host_list(text); }),
              std::string("invalid argument: node list '") + text +
                  "' is not of the form node[01-03,7],gpu5");
  }
}

TEST(HostList, RejectsMoreHostsThanAnyMachineHas) {
  for (const char* text :
       {"a[0-65536]", "a[0-999]b[0-999]", "a[0-999999999]", "a[0-40000],b[0-40000]"}) {
    EXPECT_EQ(test::error_of([&] { (void)expand_host_list(text); }),
              std::string("invalid argument: node list '") + text + "' has more than 65536 hosts");
  }
}

}  // namespace
}  // namespace ferry::boot
