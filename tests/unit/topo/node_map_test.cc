#include "topo/node_map.hpp"

#include <gmock/gmock.h>

#include <string>

#include "ferry/error.hpp"

namespace ferry::topo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Rows of '1' and '0': who can map whom.
std::vector<std::vector<bool>> matrix(const std::vector<std::string>& rows) {
  std::vector<std::vector<bool>> out;
  for (const std::string& row : rows) {
    out.emplace_back();
    for (const char c : row) out.back().push_back(c == '1');
  }
  return out;
}

std::string error_of(const std::vector<std::string>& rows, int num_pretended_nodes = 1) {
  try {
    (void)make_node_map(matrix(rows), num_pretended_nodes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(NodeMap, OfNoRanksHasNoNodes) {
  const NodeMap map = make_node_map({}, 1);

  EXPECT_EQ(map.num_nodes, 0);
  EXPECT_THAT(map.node_of, IsEmpty());
}

TEST(NodeMap, PutsARankThatMapsNobodyOnANodeOfItsOwn) {
  const NodeMap map = make_node_map(matrix({"100", "010", "001"}), 1);

  EXPECT_EQ(map.num_nodes, 3);
  EXPECT_THAT(map.node_of, ElementsAre(0, 1, 2));
  EXPECT_THAT(map.local_rank_of, ElementsAre(0, 0, 0));
}

TEST(NodeMap, NumbersNodesByTheirLowestRank) {
  const NodeMap map = make_node_map(matrix({"10010", "01101", "01101", "10010", "01101"}), 1);

  EXPECT_EQ(map.num_nodes, 2);
  EXPECT_THAT(map.node_of, ElementsAre(0, 1, 1, 0, 1));
  EXPECT_THAT(map.local_rank_of, ElementsAre(0, 0, 1, 1, 2));
}

TEST(NodeMap, DoesNotAskWhetherARankMapsItself) {
  const NodeMap map = make_node_map(matrix({"01", "10"}), 0);

  EXPECT_EQ(map.num_nodes, 1);
  EXPECT_THAT(map.local_rank_of, ElementsAre(0, 1));
}

TEST(NodeMap, SplitsANodeIntoRunsOfItsRanks) {
  const std::vector<std::string> all(6, "111111");

  const NodeMap map = make_node_map(matrix(all), 3);

  EXPECT_EQ(map.num_nodes, 3);
  EXPECT_THAT(map.node_of, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(map.local_rank_of, ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(NodeMap, SplitsEveryRealNodeAndNumbersThePartsByTheirLowestRank) {
  // Ranks 0 2 4 6 on one host, 1 3 5 7 on the other.
  std::vector<std::string> rows;
  for (int rank = 0; rank < 8; ++rank) rows.push_back(rank % 2 == 0 ? "10101010" : "01010101");

  const NodeMap map = make_node_map(matrix(rows), 2);

  EXPECT_EQ(map.num_nodes, 4);
  EXPECT_THAT(map.node_of, ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(map.local_rank_of, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
}

TEST(NodeMap, RejectsANodeThatCannotBeSplitEvenly) {
  EXPECT_EQ(error_of(std::vector<std::string>(7, "1111111"), 2),
            "the 7 ranks of rank 0's node cannot be split evenly into 2 pretended nodes");
  EXPECT_EQ(error_of({"1100", "1100", "0011", "0011"}, 4),
            "the 2 ranks of rank 0's node cannot be split evenly into 4 pretended nodes");
}

TEST(NodeMap, RejectsANegativeNumberOfPretendedNodes) {
  EXPECT_EQ(error_of({"1"}, -1), "the number of pretended nodes is -1, expected 0 or more");
}

TEST(NodeMap, RejectsARowOfAnotherLength) {
  EXPECT_EQ(error_of({"11", "1"}), "rank 1 tells of 1 ranks that it can map or not, expected 2");
}

TEST(NodeMap, RejectsMappingThatIsNotMutual) {
  EXPECT_EQ(error_of({"100", "010", "011"}),
            "rank 2 can map the memory of rank 1, but rank 1 cannot map that of rank 2");
  EXPECT_EQ(error_of({"110", "010", "001"}),
            "rank 0 can map the memory of rank 1, but rank 1 cannot map that of rank 0");
}

TEST(NodeMap, RejectsAChainOfRanksThatDoNotAllMapEachOther) {
  EXPECT_EQ(error_of({"110", "111", "011"}),
            "ranks 1 and 0 can map each other, but of the two only rank 1 can map rank 2; ranks of "
            "one node must all map each other");
}

TEST(NodeMap, ChecksEveryGraphOfFourRanks) {
  // 2^6 mutual graphs; 15 of them are partitions of four ranks.
  int num_accepted = 0;
  for (int edges = 0; edges < 64; ++edges) {
    std::vector<std::vector<bool>> can_map(4, std::vector<bool>(4));
    int edge = 0;
    for (std::size_t a = 0; a < 4; ++a) {
      for (std::size_t b = a + 1; b < 4; ++b) {
        can_map[a][b] = can_map[b][a] = (edges >> edge++) % 2 == 1;
      }
    }
    try {
      (void)make_node_map(can_map, 1);
      ++num_accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(num_accepted, 15);
}

}  // namespace
}  // namespace ferry::topo
