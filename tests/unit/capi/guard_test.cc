#include "capi/guard.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ferry::capi {
namespace {

TEST(Guard, GivesOkWhenTheBodyReturns) {
  bool ran = false;

  EXPECT_EQ(guard("f", {}, [&] { ran = true; }), FERRY_OK);

  EXPECT_TRUE(ran);
}

TEST(Guard, GivesTheCodeAndMessageOfAnError) {
  for (int code = FERRY_INVALID_ARGUMENT; code <= FERRY_INTERNAL; ++code) {
    const std::string message = "failure number " + std::to_string(code);

    EXPECT_EQ(guard("f", {}, [&] { throw_error(static_cast<ErrorCode>(code), message); }), code);
    EXPECT_EQ(ferry_last_error(), message);
  }
}

TEST(Guard, NamesFunctionAndArgumentOfANull) {
  const int given = 1;
  const int* missing = nullptr;

  const ferry_status status = guard("ferry_f", {FERRY_REQUIRED(&given), FERRY_REQUIRED(missing)},
                                    [] { FAIL() << "the body ran without its argument"; });

  EXPECT_EQ(status, FERRY_INVALID_ARGUMENT);
  EXPECT_STREQ(ferry_last_error(), "ferry_f got NULL for 'missing'");
}

TEST(Guard, CallsMissingMemoryAResource) {
  EXPECT_EQ(guard("f", {}, [] { throw std::bad_alloc(); }), FERRY_NO_RESOURCE);
  EXPECT_STREQ(ferry_last_error(), "the process is out of memory");
}

TEST(Guard, CallsForeignExceptionsInternal) {
  EXPECT_EQ(guard("f", {}, [] { throw std::out_of_range("index 3"); }), FERRY_INTERNAL);
  EXPECT_STREQ(ferry_last_error(), "index 3");

  EXPECT_EQ(guard("f", {}, [] { throw 42; }), FERRY_INTERNAL);
  EXPECT_STREQ(ferry_last_error(), "an exception of unknown type reached the C ABI");
}

TEST(GuardNew, GivesNullOnEveryFailure) {
  int stale = 0;
  int* handle = &stale;
  EXPECT_EQ(guard_new("f", {}, &handle, []() -> int* { throw std::bad_alloc(); }),
            FERRY_NO_RESOURCE);
  EXPECT_EQ(handle, nullptr);

  handle = &stale;
  const int* missing = nullptr;
  EXPECT_EQ(guard_new("f", {FERRY_REQUIRED(missing)}, &handle, [&] { return &stale; }),
            FERRY_INVALID_ARGUMENT);
  EXPECT_EQ(handle, nullptr);
}

TEST(GuardNew, RefusesAMissingPlaceForTheHandle) {
  int** out_handle = nullptr;

  EXPECT_EQ(guard_new("ferry_f", {FERRY_REQUIRED(out_handle)}, out_handle,
                      []() -> int* { return nullptr; }),
            FERRY_INVALID_ARGUMENT);
  EXPECT_STREQ(ferry_last_error(), "ferry_f got NULL for 'out_handle'");
}

}  // namespace
}  // namespace ferry::capi
