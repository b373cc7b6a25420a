#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ferry/error.hpp"

namespace ferry::plan {

// The call throws this code with exactly this text.
template <typename Call>
void expect_error(ErrorCode code, const std::string& text, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.what(), text);
  }
}

}  // namespace ferry::plan
