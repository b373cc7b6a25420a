// The entry of every test program that needs a GPU: skipped, not failed, where there is none.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cuda/plugin.hpp"
#include "ferry/error.hpp"
#include "support/role.hpp"

int main(int argc, char** argv) {
  // Ranks that are threads share a process: as many hardware queues as a process may have, so that
  // one rank's gate cannot stand in the way of another's move.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (const auto status = ferry::support::run_role(argc, argv)) return *status;
  try {
    (void)ferry::cuda::load_plugin().num_devices();
  } catch (const ferry::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;  // ctest's "skipped"
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
