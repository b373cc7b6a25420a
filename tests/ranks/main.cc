// A test program whose ranks are executed copies of itself.

#include <gtest/gtest.h>

#include "support/role.hpp"

int main(int argc, char** argv) {
  if (const auto status = ferry::support::run_role(argc, argv)) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
