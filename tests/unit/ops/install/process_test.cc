#include "ops/install/process.hpp"

#include <gtest/gtest.h>

namespace ferry::ops {
namespace {

TEST(RunProcess, GivesInputAndTakesOutputAndCode) {
  const ProcessResult result =
      run_process({.argv = {"sh", "-c", "cat; echo err >&2; exit 3"}, .input = "in\n"});

  EXPECT_EQ(result.output, "in\nerr\n");
  EXPECT_EQ(result.words(), "exit code 3");
}

TEST(RunProcess, EndsWhatHangs) {
  const ProcessResult result = run_process(
      {.argv = {"sh", "-c", "exec sleep 60"}, .deadline = std::chrono::milliseconds(100)});

  EXPECT_TRUE(result.is_late);
  EXPECT_FALSE(result.is_fine());
  EXPECT_EQ(result.words(), "no end within its deadline");
}

TEST(RunProcess, SaysThatAProgramIsNotThere) {
  const ProcessResult result = run_process({.argv = {"no-such-program-here"}});

  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.output, "no such program\n");
}

TEST(RunProcess, SurvivesAProgramThatReadsNothing) {
  EXPECT_TRUE(run_process({.argv = {"true"}, .input = std::string(1 << 20, 'x')}).is_fine());
}

TEST(RunProcess, DoesNotWaitForWhatAProgramLeavesBehind) {
  const ProcessResult result = run_process({.argv = {"sh", "-c", "sleep 30 & echo done"}});

  EXPECT_EQ(result.output, "done\n");
  EXPECT_TRUE(result.is_fine());
}

TEST(RunProcess, KeepsTheEndOfALongOutput) {
  const ProcessResult result =
      run_process({.argv = {"sh", "-c", "yes | head -n 500000; echo end"}});

  EXPECT_TRUE(result.output.ends_with("end\n"));
  EXPECT_LE(result.output.size(), std::size_t{160} << 10);
}

}  // namespace
}  // namespace ferry::ops
