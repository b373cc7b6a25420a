#include "bench/device_count.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

namespace ferry::bench {
namespace {

TEST(AskChild, BringsTheAnswerOfAnotherProcess) {
  EXPECT_EQ(ask_child([] { return 8; }), 8);
  EXPECT_NE(ask_child([] { return ::getpid(); }), ::getpid());
}

TEST(AskChild, ThrowsWhatTheChildThrew) {
  try {
    static_cast<void>(
        ask_child([]() -> int { throw_error(ErrorCode::kUnavailable, "driver: too old"); }));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_STREQ(error.what(), "driver: too old");
  }
}

TEST(AskChild, SaysThatAChildDiedWithoutAnAnswer) {
  try {
    static_cast<void>(ask_child([]() -> int { ::_exit(5); }));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_STREQ(error.what(), "a child that was asked a question gave no answer: status 1280");
  }
}

}  // namespace
}  // namespace ferry::bench
