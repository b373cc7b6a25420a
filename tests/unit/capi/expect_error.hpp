#pragma once

#include <gtest/gtest.h>

#include "ferry/error.hpp"

namespace ferry::capi {

// Runs `body`, which must throw ferry::Error of this code and exactly this message.
template <typename Body>
void expect_error(ErrorCode code, const std::string& message, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.what(), message);
  }
}

}  // namespace ferry::capi
