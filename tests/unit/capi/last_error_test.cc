#include "capi/last_error.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace ferry::capi {
namespace {

TEST(LastError, IsEmptyBeforeTheFirstFailureOfAThread) {
  std::string seen = "never ran";
  std::thread([&] { seen = ferry_last_error(); }).join();

  EXPECT_EQ(seen, "");
}

TEST(LastError, BelongsToItsThread) {
  record_failure(FERRY_TIMEOUT, "mine");

  std::string other;
  std::thread([&] {
    record_failure(FERRY_SYSTEM, "theirs");
    other = ferry_last_error();
  }).join();

  EXPECT_EQ(other, "theirs");
  EXPECT_STREQ(ferry_last_error(), "mine");
  EXPECT_EQ(last_failure(), FERRY_TIMEOUT);
}

TEST(LastError, StaysThroughCallsThatSucceed) {
  record_failure(FERRY_TIMEOUT, "before");
  const char* borrowed = ferry_last_error();

  std::int64_t num_elements = 0;
  const ferry_tensor tensor = ferry_tensor_dense(nullptr, FERRY_DTYPE_BF16, 0, nullptr);
  ASSERT_EQ(ferry_tensor_num_elements(&tensor, &num_elements), FERRY_OK);

  EXPECT_STREQ(borrowed, "before");
  EXPECT_STREQ(ferry_last_error(), "before");
}

TEST(LastError, HoldsAMessageOfAnyLength) {
  const std::string message(1 << 20, 'x');

  record_failure(FERRY_INTERNAL, message);

  EXPECT_EQ(ferry_last_error(), message);
}

TEST(StatusName, NamesEveryStatusAndRefusesTheRest) {
  EXPECT_STREQ(ferry_status_name(FERRY_OK), "ok");
  EXPECT_STREQ(ferry_status_name(FERRY_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(ferry_status_name(FERRY_UNAVAILABLE), "unavailable");
  EXPECT_STREQ(ferry_status_name(FERRY_NO_RESOURCE), "no resource");
  EXPECT_STREQ(ferry_status_name(FERRY_SYSTEM), "system error");
  EXPECT_STREQ(ferry_status_name(FERRY_TIMEOUT), "timeout");
  EXPECT_STREQ(ferry_status_name(FERRY_PEER_LOST), "peer lost");
  EXPECT_STREQ(ferry_status_name(FERRY_INTERNAL), "internal error");
  EXPECT_STREQ(ferry_status_name(8), "unknown error");
  EXPECT_STREQ(ferry_status_name(-1), "unknown error");
}

}  // namespace
}  // namespace ferry::capi
