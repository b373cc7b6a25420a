// How executed ranks find each other: our own variables, torchrun's, Open MPI's; and what a wrong
// environment says.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "ranks/faults.hpp"

namespace ferry::ranks {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

ProcessRanks::Options rounds(int num_ranks) {
  ProcessRanks::Options options;
  options.role = "exchange";
  options.num_ranks = num_ranks;
  options.arguments = {"ht", "5"};
  return options;
}

// One process with exactly these variables; what it says instead of meeting anybody.
std::string fault_with(const Variables& variables) {
  ProcessRanks::Options options;
  options.role = "meeting";
  options.has_ferry_variables = false;
  options.environment = variables;
  ProcessRanks ranks(options);
  return ranks.expect_line(0, "FAULT ").text;
}

// A TCP port of 127.0.0.1 that somebody listens on.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    number = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int number = 0;

 private:
  int fd_;
};

TEST(Launch, MeetsByFerryVariables) {
  for (const int num_ranks : {1, 2, 7}) {
    ProcessRanks ranks(rounds(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(ranks.expect_line(rank, "MET ").text,
                std::to_string(rank) + " of " + std::to_string(num_ranks));
      ranks.expect_line(rank, "FINISHED");
      EXPECT_EQ(ranks.wait_exit(rank), 0);
    }
  }
}

TEST(Launch, MeetsByTorchrunVariables) {
  ProcessRanks::Options options = rounds(4);
  options.has_ferry_variables = false;
  const std::string run = "ferry-test-" + std::to_string(::getpid());
  options.rank_environment = [run](int rank) {
    return Variables{{"RANK", std::to_string(rank)},       {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", "29500"},
                     {"TORCHELASTIC_RUN_ID", run}};
  };

  ProcessRanks ranks(options);

  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks.expect_line(rank, "MET ").text, std::to_string(rank) + " of 4");
    ranks.expect_line(rank, "FINISHED");
    EXPECT_EQ(ranks.wait_exit(rank), 0);
  }
}

TEST(Launch, MeetsUnderMpirun) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "mpirun is not installed; try: apt-get install openmpi-bin";
  ProcessRanks::Options options = rounds(4);
  options.has_ferry_variables = false;
  options.launcher = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"};

  ProcessRanks ranks(options);

  for (int rank = 0; rank < 4; ++rank) ranks.expect_line(0, "FINISHED");
  EXPECT_EQ(ranks.wait_exit(0), 0);
}

TEST(Launch, MeetsOverTcpWithASecret) {
  int port = 0;
  {
    const TakenPort free_again;
    port = free_again.number;
  }
  ProcessRanks::Options options = rounds(3);
  options.has_ferry_variables = false;
  options.rank_environment = [port](int rank) {
    return Variables{{"FERRY_RANK", std::to_string(rank)},
                     {"FERRY_SIZE", "3"},
                     {"FERRY_ADDRESS", "127.0.0.1:" + std::to_string(port)},
                     {"FERRY_SECRET", "a secret that only this test knows"}};
  };

  ProcessRanks ranks(options);

  for (int rank = 0; rank < 3; ++rank) ranks.expect_line(rank, "FINISHED");
}

TEST(Launch, NamesAMalformedRankOrSize) {
  EXPECT_EQ(fault_with({{"FERRY_RANK", "one"}, {"FERRY_SIZE", "2"}, {"FERRY_ADDRESS", "unix:x"}})
                .find("1 FERRY_RANK='one' is not "),
            0u);
  EXPECT_EQ(fault_with({{"FERRY_RANK", "0"}, {"FERRY_SIZE", "-3"}, {"FERRY_ADDRESS", "unix:x"}})
                .find("1 FERRY_SIZE='-3' is not "),
            0u);
  EXPECT_EQ(fault_with({{"FERRY_RANK", "4"}, {"FERRY_SIZE", "4"}, {"FERRY_ADDRESS", "unix:x"}}),
            "1 FERRY_RANK='4' is not below FERRY_SIZE='4'");
  EXPECT_EQ(fault_with({{"FERRY_RANK", "1"}, {"FERRY_ADDRESS", "unix:x"}}),
            "1 FERRY_RANK='1' is given without FERRY_SIZE");
  EXPECT_EQ(fault_with({{"RANK", "1"}, {"WORLD_SIZE", "2 "}, {"MASTER_ADDR", "127.0.0.1"}})
                .find("1 WORLD_SIZE='2 ' is not a whole number from 1 to "),
            0u);
}

TEST(Launch, NamesTheMissingRanks) {
  const std::string fault = fault_with({{"FERRY_RANK", "0"},
                                        {"FERRY_SIZE", "3"},
                                        {"FERRY_ADDRESS", "unix:ferry-test-alone"},
                                        {"FERRY_MEETING_TIMEOUT_MS", "500"}});
  EXPECT_TRUE(fault.starts_with("5 ")) << fault;
  EXPECT_NE(fault.find("1"), std::string::npos) << fault;
  EXPECT_NE(fault.find("2"), std::string::npos) << fault;
}

TEST(Launch, RefusesSeveralHostsWithoutASecretAndSaysHowToMakeOne) {
  const std::string fault = fault_with({{"FERRY_RANK", "0"},
                                        {"FERRY_SIZE", "2"},
                                        {"FERRY_ADDRESS", "127.0.0.1:29501"},
                                        {"FERRY_MEETING_TIMEOUT_MS", "2000"}});
  EXPECT_TRUE(fault.starts_with("2 ")) << fault;
  EXPECT_NE(fault.find("FERRY_SECRET"), std::string::npos) << fault;
  EXPECT_NE(fault.find("; try: "), std::string::npos) << fault;
}

TEST(Launch, NamesAPortThatIsTaken) {
  const TakenPort port;
  const std::string address = "127.0.0.1:" + std::to_string(port.number);
  const std::string fault = fault_with({{"FERRY_RANK", "0"},
                                        {"FERRY_SIZE", "2"},
                                        {"FERRY_ADDRESS", address},
                                        {"FERRY_SECRET", "a secret that only this test knows"},
                                        {"FERRY_MEETING_TIMEOUT_MS", "2000"}});
  EXPECT_TRUE(fault.starts_with("4 ")) << fault;
  EXPECT_NE(fault.find(std::to_string(port.number)), std::string::npos) << fault;
  EXPECT_NE(fault.find("Address already in use"), std::string::npos) << fault;
}

TEST(Launch, NamesAnAddressThatDoesNotAnswer) {
  // 192.0.2.0/24 is kept free for documentation.
  const std::string fault = fault_with({{"FERRY_RANK", "1"},
                                        {"FERRY_SIZE", "2"},
                                        {"FERRY_ADDRESS", "192.0.2.1:29501"},
                                        {"FERRY_SECRET", "a secret that only this test knows"},
                                        {"FERRY_MEETING_TIMEOUT_MS", "1000"}});
  EXPECT_TRUE(fault.starts_with("4 ") || fault.starts_with("5 ")) << fault;
  EXPECT_NE(fault.find("192.0.2.1"), std::string::npos) << fault;
}

TEST(Launch, NeverShowsTheSecret) {
  for (const char* port : {"70000", "29501", "nonsense"}) {
    const std::string fault = fault_with({{"FERRY_RANK", "1"},
                                          {"FERRY_SIZE", "2"},
                                          {"FERRY_ADDRESS", std::string("127.0.0.1:") + port},
                                          {"FERRY_SECRET", "hush-hush-hush"},
                                          {"FERRY_MEETING_TIMEOUT_MS", "300"}});
    EXPECT_EQ(fault.find("hush"), std::string::npos) << fault;
  }
}

}  // namespace
}  // namespace ferry::ranks
