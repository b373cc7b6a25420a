#include "bench/launch.hpp"

#include <gtest/gtest.h>

#include <map>

#include "ferry/error.hpp"

namespace ferry::bench {
namespace {

Lookup environment(std::map<std::string, std::string, std::less<>> variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(PlanLaunch, StartsTheRanksWhereNobodyElseDoes) {
  const LaunchPlan plan = plan_launch({}, environment({}));

  EXPECT_TRUE(plan.is_self);
  EXPECT_TRUE(plan.notes.empty());
}

TEST(PlanLaunch, JoinsALauncherOfSingleRanks) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "FERRY_RANK"})
    EXPECT_FALSE(plan_launch({}, environment({{name, "0"}})).is_self) << name;
}

TEST(PlanLaunch, SaysWhatItIgnores) {
  const LaunchPlan plan = plan_launch({}, environment({{"RANK", "0"}, {"WORLD_SIZE", "2"}}));

  EXPECT_TRUE(plan.is_self);
  EXPECT_EQ(plan.notes,
            std::vector<std::string>{"RANK=0, WORLD_SIZE=2 ignored: no launcher of single ranks is "
                                     "seen; try: ferry bench --launch env"});
}

TEST(PlanLaunch, StartsTheRanksWhenToldTo) {
  BenchOptions options;
  options.launch = Launch::kSelf;

  const LaunchPlan plan = plan_launch(options, environment({{"OMPI_COMM_WORLD_RANK", "1"}}));

  EXPECT_TRUE(plan.is_self);
  EXPECT_EQ(plan.notes,
            std::vector<std::string>{"OMPI_COMM_WORLD_RANK=1 ignored: --launch self starts the "
                                     "ranks; try: ferry bench --launch env"});
}

TEST(PlanLaunch, StartsRanksThatAreThreadsItself) {
  BenchOptions options;
  options.has_thread_ranks = true;

  const LaunchPlan plan = plan_launch(options, environment({{"LOCAL_RANK", "1"}}));

  EXPECT_TRUE(plan.is_self);
  EXPECT_EQ(plan.notes,
            std::vector<std::string>{"LOCAL_RANK=1 ignored: --thread-ranks starts the ranks; try: "
                                     "ferry bench --launch env"});
}

TEST(PlanLaunch, JoinsNodesAsRanksOnlyWhenToldTo) {
  BenchOptions options;
  options.launch = Launch::kEnv;

  EXPECT_FALSE(plan_launch(options, environment({{"RANK", "0"}})).is_self);
}

TEST(PlanLaunch, RefusesToJoinNothing) {
  BenchOptions options;
  options.launch = Launch::kEnv;
  try {
    static_cast<void>(plan_launch(options, environment({})));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "--launch env, but the environment describes no group (no FERRY_RANK, "
                 "OMPI_COMM_WORLD_RANK, SLURM_PROCID or RANK); try: ferry bench --launch self");
  }
}

TEST(PlanRanks, GivesEveryRankOfOneHostTheSameUnguessableAddress) {
  const std::vector<RankProcess> ranks = plan_ranks({}, 3);
  const std::vector<RankProcess> others = plan_ranks({}, 3);

  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[2].environment[0], (std::pair<std::string, std::string>("FERRY_RANK", "2")));
  EXPECT_EQ(ranks[2].environment[1], (std::pair<std::string, std::string>("FERRY_SIZE", "3")));
  EXPECT_EQ(ranks[2].environment[2], ranks[0].environment[2]);
  EXPECT_TRUE(ranks[0].environment[2].second.starts_with("unix:ferry-bench-"));
  EXPECT_NE(ranks[0].environment[2], others[0].environment[2]);
}

TEST(PlanRanks, StartsOnlyTheRanksOfThisHost) {
  BenchOptions options;
  options.node_rank = 1;
  options.num_nodes = 2;
  options.ranks_per_node = 2;
  options.address = "host:7777";

  const std::vector<RankProcess> ranks = plan_ranks(options, 4);

  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].rank, 2);
  EXPECT_EQ(ranks[0].environment[1].second, "4");
  EXPECT_EQ(ranks[0].environment[2].second, "host:7777");
}

int worst(std::vector<RankEnd> ends) { return worst_exit_code(ends); }

TEST(WorstExitCode, PutsADefectFirstAndAKillBesideALostPeer) {
  EXPECT_EQ(worst({}), 0);
  EXPECT_EQ(worst({{0, 0, 0}, {1, 0, 0}}), 0);
  EXPECT_EQ(worst({{0, 1, 0}, {1, 0, 0}}), 1);
  EXPECT_EQ(worst({{0, 0, 0}, {1, 0, 9}}), 1);
  EXPECT_EQ(worst({{0, 2, 0}, {1, 1, 0}}), 2);
  EXPECT_EQ(worst({{0, 2, 0}, {1, 3, 0}}), 3);
  EXPECT_EQ(worst({{0, 4, 0}, {1, 0, 0}}), 4);
  EXPECT_EQ(worst({{0, 4, 0}, {1, 1, 0}}), 1);
  EXPECT_EQ(worst({{0, 127, 0}}), 3);
}

}  // namespace
}  // namespace ferry::bench
