#include "boot/launch_env.hpp"

#include <gmock/gmock.h>

#include <map>

#include "unit/boot/meetings.hpp"

namespace ferry::boot {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::optional<Meeting> read(const Variables& variables) {
  const Lookup lookup = lookup_in(variables);
  return read_launch_env(lookup, parse_env(lookup));
}

std::string error_of(const Variables& variables) {
  return test::error_of([&] { (void)read(variables); });
}

Variables operator+(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

const Variables kTorch{{"RANK", "3"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "3"},
                       {"LOCAL_WORLD_SIZE", "8"},
                       {"MASTER_ADDR", "node1"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_RUN_ID", "job7"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "3742105601"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},         {"SLURM_STEP_NUM_TASKS", "16"},
                       {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "2"},        {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

TEST(LaunchEnv, SeesNoLauncherInAnEmptyEnvironment) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"LOCAL_RANK", "1"}, {"SLURM_NTASKS", "4"}, {"MASTER_ADDR", "a"}}));
}

TEST(LaunchEnv, ReadsFerryVariables) {
  const auto meeting = read({{"FERRY_RANK", "1"},
                             {"FERRY_SIZE", "2"},
                             {"FERRY_ADDRESS", "unix:job"},
                             {"FERRY_INTERFACE", "eth0"},
                             {"FERRY_MEETING_TIMEOUT_MS", "77"}});

  ASSERT_TRUE(meeting);
  EXPECT_EQ(meeting->rank, 1);
  EXPECT_EQ(meeting->size, 2);
  EXPECT_EQ(meeting->address, "unix:job");
  EXPECT_EQ(meeting->interface, "eth0");
  EXPECT_EQ(meeting->timeout, std::chrono::milliseconds(77));
  EXPECT_EQ(meeting->launcher, "FERRY_*");
}

TEST(LaunchEnv, CarriesTheSecretToAMeetingOverTcpOnly) {
  const Variables base{{"FERRY_RANK", "1"}, {"FERRY_SIZE", "2"}, {"FERRY_SECRET", "hush"}};

  EXPECT_EQ(read(base + Variables{{"FERRY_ADDRESS", "h:1"}})->secret, "hush");
  EXPECT_EQ(read(base + Variables{{"FERRY_ADDRESS", "unix:h"}})->secret, "");
  EXPECT_TRUE(
      read(base + Variables{{"FERRY_ADDRESS", "h:1"}, {"FERRY_INSECURE", "1"}})->is_insecure);
}

TEST(LaunchEnv, RejectsHalfGivenFerryVariables) {
  EXPECT_EQ(error_of({{"FERRY_RANK", "1"}}),
            "invalid argument: FERRY_RANK='1' is given without FERRY_SIZE");
  EXPECT_EQ(error_of({{"FERRY_SIZE", "2"}}),
            "invalid argument: FERRY_SIZE='2' is given without FERRY_RANK");
  EXPECT_EQ(error_of({{"FERRY_RANK", "2"}, {"FERRY_SIZE", "2"}}),
            "invalid argument: FERRY_RANK='2' is not below FERRY_SIZE='2'");
  EXPECT_EQ(error_of({{"FERRY_RANK", "1"}, {"FERRY_SIZE", "2"}}),
            "invalid argument: FERRY_RANK and FERRY_SIZE are given without FERRY_ADDRESS; try: "
            "FERRY_ADDRESS=unix:<name of the job> on one host, <host of rank 0>:<port> on several");
}

TEST(LaunchEnv, WantsNoAddressForAGroupOfOne) {
  EXPECT_EQ(read({{"FERRY_RANK", "0"}, {"FERRY_SIZE", "1"}})->size, 1);
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})->address, "");
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->address, "");
}

TEST(LaunchEnv, ReadsTorchrunOnOneHost) {
  const auto meeting = read(kTorch);

  EXPECT_EQ(meeting->rank, 3);
  EXPECT_EQ(meeting->size, 8);
  EXPECT_EQ(meeting->address, "unix:torchrun-29500-job7-0");
  EXPECT_EQ(meeting->launcher, "torchrun");
}

TEST(LaunchEnv, KeepsARestartedTorchrunApart) {
  EXPECT_EQ(read(kTorch + Variables{{"TORCHELASTIC_RESTART_COUNT", "2"}})->address,
            "unix:torchrun-29500-job7-2");
}

TEST(LaunchEnv, ReadsTorchrunOnSeveralHosts) {
  const Variables two_hosts = kTorch + Variables{{"WORLD_SIZE", "16"}};

  EXPECT_EQ(read(two_hosts)->address, "node1:29501");
  EXPECT_EQ(read(two_hosts + Variables{{"FERRY_PORT", "4000"}})->address, "node1:4000");
  EXPECT_EQ(read(two_hosts + Variables{{"MASTER_ADDR", "fe80::1"}})->address, "[fe80::1]:29501");
}

TEST(LaunchEnv, TakesALoopbackMasterForOneHost) {
  const Variables plain{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};

  EXPECT_EQ(read(plain)->address, "unix:torchrun-29500--0");
  EXPECT_EQ(read(plain + Variables{{"MASTER_ADDR", "10.0.0.1"}})->address, "10.0.0.1:29501");
}

TEST(LaunchEnv, RejectsMalformedTorchrunVariables) {
  const Variables two_hosts = kTorch + Variables{{"WORLD_SIZE", "16"}};

  EXPECT_EQ(error_of(kTorch + Variables{{"RANK", "three"}}),
            "invalid argument: RANK='three' is not a whole number from 0 to 4095");
  EXPECT_EQ(error_of(kTorch + Variables{{"WORLD_SIZE", "0"}}),
            "invalid argument: WORLD_SIZE='0' is not a whole number from 1 to 4096");
  EXPECT_EQ(error_of(kTorch + Variables{{"RANK", "8"}}),
            "invalid argument: RANK='8' is not below WORLD_SIZE='8'");
  EXPECT_EQ(error_of(without(kTorch, "WORLD_SIZE")),
            "invalid argument: RANK='3' is given without WORLD_SIZE");
  EXPECT_EQ(error_of(without(kTorch, "RANK")),
            "invalid argument: WORLD_SIZE='8' is given without RANK");
  EXPECT_EQ(error_of(kTorch + Variables{{"LOCAL_WORLD_SIZE", "-"}}),
            "invalid argument: LOCAL_WORLD_SIZE='-' is not a whole number from 1 to 4096");
  EXPECT_EQ(error_of(without(two_hosts, "MASTER_ADDR")),
            "invalid argument: RANK='3' is given without MASTER_ADDR");
  EXPECT_EQ(error_of(without(two_hosts, "MASTER_PORT")),
            "invalid argument: MASTER_ADDR='node1' is given without MASTER_PORT or FERRY_PORT");
  EXPECT_EQ(error_of(two_hosts + Variables{{"MASTER_PORT", "http"}}),
            "invalid argument: MASTER_PORT='http' is not a whole number from 1 to 65535");
  EXPECT_EQ(error_of(two_hosts + Variables{{"MASTER_PORT", "65535"}}),
            "invalid argument: MASTER_PORT='65535' leaves no port above it for the meeting; try: "
            "FERRY_PORT=<a free port>");
  EXPECT_EQ(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}),
            "invalid argument: RANK='0' is given without MASTER_PORT or TORCHELASTIC_RUN_ID to "
            "name the job");
}

TEST(LaunchEnv, ReadsOpenMpiOnOneHost) {
  const auto meeting = read(kOpenMpi);

  EXPECT_EQ(meeting->rank, 1);
  EXPECT_EQ(meeting->size, 4);
  EXPECT_EQ(meeting->address, "unix:open-mpi-3742105601");
  EXPECT_EQ(meeting->launcher, "Open MPI");
  EXPECT_EQ(read(without(kOpenMpi, "PMIX_NAMESPACE") + Variables{{"OMPI_MCA_ess_base_jobid", "99"}})
                ->address,
            "unix:open-mpi-99");
}

TEST(LaunchEnv, WantsAnAddressForOpenMpiOnSeveralHosts) {
  const Variables two_hosts = kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

  EXPECT_EQ(error_of(two_hosts),
            "invalid argument: Open MPI runs 2 of 4 ranks on this host and names no address for "
            "them to meet; try: mpirun -x FERRY_ADDRESS=<host of rank 0>:<port>");
  EXPECT_EQ(read(two_hosts + Variables{{"FERRY_ADDRESS", "node1:4000"}})->address, "node1:4000");
}

TEST(LaunchEnv, RejectsMalformedOpenMpiVariables) {
  EXPECT_EQ(error_of(kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", ""}}),
            "invalid argument: OMPI_COMM_WORLD_RANK='' is not a whole number from 0 to 4095");
  EXPECT_EQ(error_of(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
            "invalid argument: OMPI_COMM_WORLD_RANK='1' is given without OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(error_of(without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE")),
            "invalid argument: Open MPI runs an unknown number of 4 ranks on this host and names "
            "no address for them to meet; try: mpirun -x FERRY_ADDRESS=<host of rank 0>:<port>");
  EXPECT_EQ(error_of(without(kOpenMpi, "PMIX_NAMESPACE")),
            "invalid argument: Open MPI gives neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid "
            "to name the job; try: mpirun -x FERRY_ADDRESS=unix:<name of the job>");
}

TEST(LaunchEnv, ReadsSlurm) {
  const auto meeting = read(kSlurm);

  EXPECT_EQ(meeting->rank, 5);
  EXPECT_EQ(meeting->size, 16);
  EXPECT_EQ(meeting->address, "gpu07:24773");
  EXPECT_EQ(meeting->launcher, "Slurm");
  EXPECT_EQ(read(kSlurm + Variables{{"FERRY_PORT", "4000"}})->address, "gpu07:4000");
  EXPECT_EQ(read(kSlurm + Variables{{"SLURM_STEP_NUM_NODES", "1"}})->address, "unix:slurm-4711-2");
}

TEST(LaunchEnv, FallsBackToTheSlurmJobsOwnVariables) {
  const Variables job{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", "12"}};

  EXPECT_EQ(read(job)->address, "unix:slurm-12-0");
  EXPECT_EQ(read(job + Variables{{"SLURM_NNODES", "4"}, {"SLURM_JOB_NODELIST", "c[1-4]"}})->address,
            "c1:20012");
}

TEST(LaunchEnv, RejectsMalformedSlurmVariables) {
  EXPECT_EQ(error_of(kSlurm + Variables{{"SLURM_PROCID", "5x"}}),
            "invalid argument: SLURM_PROCID='5x' is not a whole number from 0 to 4095");
  EXPECT_EQ(error_of(kSlurm + Variables{{"SLURM_PROCID", "16"}}),
            "invalid argument: SLURM_PROCID='16' is not below SLURM_STEP_NUM_TASKS='16'");
  EXPECT_EQ(error_of({{"SLURM_PROCID", "0"}}),
            "invalid argument: SLURM_PROCID='0' is given without SLURM_NTASKS");
  EXPECT_EQ(error_of(without(kSlurm, "SLURM_JOB_ID")),
            "invalid argument: SLURM_PROCID='5' is given without SLURM_JOB_ID");
  EXPECT_EQ(error_of(kSlurm + Variables{{"SLURM_JOB_ID", "abc"}}),
            "invalid argument: SLURM_JOB_ID='abc' is not a whole number from 0 to 4294967295");
  EXPECT_EQ(error_of(kSlurm + Variables{{"SLURM_STEP_NODELIST", "gpu[7"}}),
            "invalid argument: node list 'gpu[7' is not of the form node[01-03,7],gpu5");
  EXPECT_EQ(error_of(without(kSlurm, "SLURM_STEP_NODELIST")),
            "invalid argument: Slurm gives neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST to "
            "name the host of rank 0; try: FERRY_ADDRESS=<host of rank 0>:<port>");
}

TEST(LaunchEnv, PrefersTheInnermostLauncher) {
  const Variables own{{"FERRY_RANK", "0"}, {"FERRY_SIZE", "1"}};

  EXPECT_EQ(read(kSlurm + kOpenMpi + kTorch + own)->launcher, "FERRY_*");
  // mpirun and srun start torchrun, whose workers inherit their variables.
  EXPECT_EQ(read(kSlurm + kOpenMpi + kTorch)->launcher, "torchrun");
  EXPECT_EQ(read(kSlurm + kOpenMpi)->launcher, "Open MPI");
  // RANK and WORLD_SIZE set by hand in a batch script.
  EXPECT_EQ(read(kSlurm + without(kTorch, "TORCHELASTIC_RUN_ID"))->launcher, "Slurm");
}

TEST(LaunchEnv, SeesAProcessLauncherOnlyInPerProcessVariables) {
  EXPECT_FALSE(has_process_launcher(lookup_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "FERRY_RANK"}) {
    EXPECT_TRUE(has_process_launcher(lookup_in({{name, "0"}}))) << name;
  }
}

}  // namespace
}  // namespace ferry::boot
