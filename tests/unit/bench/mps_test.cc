#include "bench/mps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ferry/error.hpp"

namespace ferry::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

// A control program that writes down how it was called, and ends as it is told to.
class FakeControl {
 public:
  explicit FakeControl(const std::string& ending = "exit 0") {
    char path[] = "/tmp/ferry-mps-test-XXXXXX";
    folder_ = ::mkdtemp(path);
    std::ofstream(program()) << "#!/bin/sh\nread -r said\n"
                             << "echo \"$* $said $CUDA_MPS_PIPE_DIRECTORY "
                                "$CUDA_MPS_LOG_DIRECTORY\" >> "
                             << folder_ << "/record\n"
                             << ending << "\n";
    ::chmod(program().c_str(), 0700);
  }
  ~FakeControl() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string program() const { return folder_ + "/control"; }
  [[nodiscard]] MpsOptions options() const {
    MpsOptions options;
    options.program = program();
    return options;
  }
  [[nodiscard]] std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::ifstream file(folder_ + "/record");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::string folder_;
};

const Lookup kNothingSet = [](std::string_view) { return std::nullopt; };

int mode_of(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 0777) : -1;
}

TEST(MpsDaemon, LivesInADirectoryOfItsOwnAndIsToldToQuit) {
  const FakeControl control;
  std::string pipe;
  {
    const MpsDaemon daemon(control.options());
    pipe = daemon.pipe_directory();

    EXPECT_THAT(pipe, StartsWith("/tmp/ferry-mps-"));
    EXPECT_EQ(mode_of(pipe), 0700);
    EXPECT_EQ(mode_of(std::filesystem::path(pipe).parent_path()), 0700);
    EXPECT_THAT(control.calls(), testing::SizeIs(1));
  }

  const std::string folder = std::filesystem::path(pipe).parent_path();
  EXPECT_THAT(control.calls(), ElementsAre("-d  " + pipe + " " + folder + "/log",
                                           " quit " + pipe + " " + folder + "/log"));
  EXPECT_EQ(mode_of(folder), -1);
}

TEST(MpsDaemon, NamesTheProgramThatIsNotInstalled) {
  MpsOptions options;
  options.program = "/nowhere/nvidia-cuda-mps-control";
  try {
    const MpsDaemon daemon(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_STREQ(error.what(),
                 "'/nowhere/nvidia-cuda-mps-control' cannot be run: No such file or directory");
  }
}

TEST(MpsDaemon, GivesUpOnAProgramThatDoesNotEnd) {
  const FakeControl control("exec sleep 60");
  MpsOptions options = control.options();
  options.deadline = std::chrono::milliseconds(50);
  try {
    const MpsDaemon daemon(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "'" + control.program() + " -d' failed: it did not end by itself within 50 ms");
  }
}

TEST(ProvideMps, StartsOneWhereProcessesShareAGpu) {
  const FakeControl control;

  const MpsUse use = provide_mps(8, 1, kNothingSet, control.options());

  EXPECT_NE(use.daemon, nullptr);
  EXPECT_EQ(use.note, "");
}

TEST(ProvideMps, StartsNoneWhereEachProcessHasAGpu) {
  const FakeControl control;

  const MpsUse use = provide_mps(8, 8, kNothingSet, control.options());

  EXPECT_EQ(use.daemon, nullptr);
  EXPECT_EQ(use.note, "");
  EXPECT_THAT(control.calls(), IsEmpty());
}

TEST(ProvideMps, TakesTheOneThatTheEnvironmentNames) {
  const FakeControl control;
  const Lookup lookup = [](std::string_view name) -> std::optional<std::string> {
    if (name != "CUDA_MPS_PIPE_DIRECTORY") return std::nullopt;
    return "/run/mps";
  };

  const MpsUse use = provide_mps(8, 1, lookup, control.options());

  EXPECT_EQ(use.daemon, nullptr);
  EXPECT_EQ(use.note, "MPS is taken from CUDA_MPS_PIPE_DIRECTORY=/run/mps");
  EXPECT_THAT(control.calls(), IsEmpty());
}

TEST(ProvideMps, SaysThatTimeSlicesDominateWithoutIt) {
  const FakeControl control("exit 7");

  const MpsUse use = provide_mps(8, 1, kNothingSet, control.options());

  EXPECT_EQ(use.daemon, nullptr);
  EXPECT_EQ(use.note,
            "MPS is missing, so 8 processes on 1 GPU take turns and time slices will dominate: '" +
                control.program() + " -d' failed: exit code 7; try: --thread-ranks");
}

}  // namespace
}  // namespace ferry::bench
