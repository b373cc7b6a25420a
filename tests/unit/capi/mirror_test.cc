#include "unit/capi/mirror.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace ferry::mirror {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;

std::string header(const std::string& name) {
  std::ifstream file(std::string(FERRY_INCLUDE_DIR "/") + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string cpp_headers() {
  std::string text;
  for (const char* name : {"error.hpp", "exchange.hpp", "group.hpp", "tensor.hpp", "version.hpp"})
    text += header(name);
  return text;
}

TEST(CHeader, HoldsEverythingOfTheCppHeaders) {
  EXPECT_THAT(missing_names(expected_names(cpp_headers()), header("ferry.h")), IsEmpty());
}

TEST(CHeader, IsMissedForEveryNameThatItCouldLose) {
  const std::vector<std::string> names = expected_names(cpp_headers());
  ASSERT_GT(names.size(), 150u);

  for (const std::string& name : names) {
    // The last part of a name, renamed wherever it stands.
    const std::string word = std::regex_replace(name, std::regex(R"(^\w+\.|\(\)$)"), "");
    const std::string without =
        std::regex_replace(header("ferry.h"), std::regex("\\b" + word + "\\b"), "gone");
    EXPECT_THAT(missing_names({name}, without), ElementsAre(name));
  }
}

TEST(ExpectedNames, FindsEveryKindOfName) {
  EXPECT_THAT(
      expected_names(cpp_headers()),
      IsSupersetOf(
          {"FERRY_PEER_LOST", "FERRY_DTYPE_FP8_E4M3", "FERRY_ROW_ORDER_HIGHEST_K_ASCENDING",
           "ferry_version()", "ferry_dtype_bytes()", "ferry_group_from_env()",
           "ferry_group_leave()", "ferry_exchange_begin_dispatch()", "ferry_exchange_get_config()",
           "ferry_route_aligned_expert_counts()", "ferry_delivery_source_offsets()",
           "ferry_tensor.strides", "ferry_tensor_num_elements()",
           "ferry_exchange_config.expert_owner", "ferry_exchange_config.arrival_timeout_ms",
           "ferry_dispatch_options.outputs", "ferry_counters.wait_ns"}));
}

TEST(ExpectedNames, FollowsTheCppHeadersAsTheyGrow) {
  const std::string text = R"(
    enum class Colour : int { kDarkRed = 0 };  // a comment
    struct PlainThing { int a = A::b(); std::vector<int> b; std::chrono::milliseconds c{0}; };
    class FERRY_API Group { public: Group(); [[nodiscard]] int f(int x = g()) const;
      bool h() const { return i(); } explicit Group(int j) : std::m(1), j_(j) {} private: int k(); };
    [[nodiscard]] FERRY_API const char* l() noexcept;
  )";

  EXPECT_THAT(
      expected_names(text),
      ElementsAre("FERRY_COLOUR_DARK_RED", "ferry_group_f()", "ferry_group_h()", "ferry_l()",
                  "ferry_plain_thing.a", "ferry_plain_thing.b", "ferry_plain_thing.c_ms"));
}

}  // namespace
}  // namespace ferry::mirror
