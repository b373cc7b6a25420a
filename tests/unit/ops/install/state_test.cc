#include "ops/install/state.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"

namespace ferry::ops {
namespace {

class State : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("ferry-state-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::string note_;
};

TEST_F(State, IsReadBackAsItWasSaved) {
  const StateFolder folder(folder_);
  InstallState state;
  state.machine_id = "m1";
  state.phases["gdrcopy"] = {"done", "boot", "then"};
  state.fetched["nvshmem"] = "a commit";
  folder.save(state);

  const InstallState read = folder.load("m1", note_);

  EXPECT_EQ(read.phases, state.phases);
  EXPECT_EQ(read.fetched, state.fetched);
  EXPECT_EQ(note_, "");
}

TEST_F(State, OfAnotherMachineIsIgnored) {
  const StateFolder folder(folder_);
  InstallState state;
  state.machine_id = "m1";
  state.phases["gdrcopy"] = {"done", "boot", "then"};
  folder.save(state);

  EXPECT_TRUE(folder.load("m2", note_).phases.empty());
  EXPECT_EQ(note_, "the recorded state is of another machine, and is ignored");
}

TEST_F(State, ThatIsDamagedIsIgnored) {
  const StateFolder folder(folder_);
  for (const char* text : {"", "{", "[]", "{\"plan_version\": 1}", "{\"plan_version\": \"x\"}"}) {
    std::ofstream(folder_ / "state.json") << text;
    EXPECT_TRUE(folder.load("m1", note_).phases.empty()) << text;
    EXPECT_EQ(note_, "the recorded state is damaged, and is ignored") << text;
  }
}

TEST_F(State, IsOfOneRunAtATime) {
  const StateFolder first(folder_);

  const auto error = capture_error([&] { const StateFolder second(folder_); });

  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->what(), "another ferry install is running here, pid " +
                               std::to_string(::getpid()) + "; try: wait for it");
}

}  // namespace
}  // namespace ferry::ops
