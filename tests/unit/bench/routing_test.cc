#include "bench/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ferry/error.hpp"

namespace ferry::bench {
namespace {

BenchOptions small_options(const std::string& routing) {
  BenchOptions options;
  options.routing = routing;
  options.tokens = 200;
  options.experts = 32;
  options.topk = 4;
  return options;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(const BenchOptions& options, int num_ranks = 2) {
  return refusal([&] { static_cast<void>(make_routing_table(options, num_ranks)); });
}

TEST(ParseRouting, KnowsItsForms) {
  EXPECT_TRUE(std::holds_alternative<UniformRouting>(parse_routing("uniform")));
  EXPECT_EQ(std::get<ZipfRouting>(parse_routing("zipf:1.25")).exponent, 1.25);
  EXPECT_EQ(std::get<GroupedRouting>(parse_routing("grouped:4/8")).num_kept, 4);
  EXPECT_EQ(std::get<GroupedRouting>(parse_routing("grouped:4/8")).num_groups, 8);
  EXPECT_EQ(std::get<RecordedRouting>(parse_routing("a.npy")).path, "a.npy");
}

TEST(ParseRouting, RefusesEverythingElse) {
  const auto refused = [](const std::string& text) {
    return refusal([&] { static_cast<void>(parse_routing(text)); });
  };

  EXPECT_EQ(refused("zipff"),
            "--routing 'zipff' is unknown, expected uniform, zipf:S, grouped:KEPT/GROUPS or a .npy "
            "file");
  for (const char* text :
       {"zipf:", "zipf:x", "zipf:-1", "zipf:nan", "zipf:inf", "zipf:1e9", "zipf:1 "})
    EXPECT_EQ(refused(text),
              "--routing '" + std::string(text) +
                  "': expected zipf:S with S from 0 to 100; try: --routing zipf:1.2");
  for (const char* text :
       {"grouped:", "grouped:4", "grouped:/", "grouped:0/8", "grouped:9/8", "grouped:4/8/2"})
    EXPECT_EQ(refused(text),
              "--routing '" + std::string(text) +
                  "': expected grouped:KEPT/GROUPS with 1 <= KEPT <= GROUPS; try: --routing "
                  "grouped:4/8");
}

TEST(RoutingTable, NamesDistinctExpertsInEveryForm) {
  for (const char* routing : {"uniform", "zipf:1.2", "zipf:0", "zipf:100", "grouped:2/4"}) {
    const RoutingTable table = make_routing_table(small_options(routing), 3);

    ASSERT_EQ(table.topk.size(), 3u);
    for (const std::vector<int>& ids : table.topk) {
      ASSERT_EQ(ids.size(), 800u);
      for (std::size_t t = 0; t < ids.size(); t += 4) {
        const std::set<int> token(ids.begin() + std::ptrdiff_t(t),
                                  ids.begin() + std::ptrdiff_t(t) + 4);
        ASSERT_EQ(token.size(), 4u) << routing;
        ASSERT_GE(*token.begin(), 0);
        ASSERT_LT(*token.rbegin(), 32);
      }
    }
  }
}

TEST(RoutingTable, DependsOnTheSeedAndNothingElse) {
  BenchOptions options = small_options("uniform");
  const RoutingTable first = make_routing_table(options, 2);
  const RoutingTable second = make_routing_table(options, 2);
  const RoutingTable more_ranks = make_routing_table(options, 3);
  options.seed = 2;
  const RoutingTable other = make_routing_table(options, 2);

  EXPECT_EQ(first.topk, second.topk);
  EXPECT_EQ(first.topk[1], more_ranks.topk[1]);
  EXPECT_NE(first.topk, other.topk);
  EXPECT_NE(first.topk[0], first.topk[1]);
}

std::vector<int> histogram(const RoutingTable& table) {
  std::vector<int> counts(static_cast<std::size_t>(table.num_experts));
  for (const auto& ids : table.topk)
    for (const int id : ids) ++counts[static_cast<std::size_t>(id)];
  return counts;
}

TEST(RoutingTable, SpreadsUniformlyAndSkewsByZipf) {
  BenchOptions options = small_options("uniform");
  options.tokens = 4000;
  const std::vector<int> uniform = histogram(make_routing_table(options, 2));
  options.routing = "zipf:1.2";
  const std::vector<int> zipf = histogram(make_routing_table(options, 2));

  // 32000 selections over 32 experts: 1000 each, standard deviation about 30.
  EXPECT_GT(*std::ranges::min_element(uniform), 850);
  EXPECT_LT(*std::ranges::max_element(uniform), 1150);
  EXPECT_GT(*std::ranges::max_element(zipf), 5000);
  EXPECT_LT(*std::ranges::min_element(zipf), 400);
}

TEST(RoutingTable, KeepsToTheChosenGroups) {
  const RoutingTable table = make_routing_table(small_options("grouped:2/8"), 1);

  for (std::size_t t = 0; t < table.topk[0].size(); t += 4) {
    std::set<int> groups;
    for (std::size_t k = 0; k < 4; ++k) groups.insert(table.topk[0][t + k] / 4);
    ASSERT_LE(groups.size(), 2u);
  }
}

TEST(RoutingTable, RefusesGroupsThatDoNotFit) {
  BenchOptions options = small_options("grouped:2/5");
  EXPECT_EQ(refusal_of(options), "--routing grouped:2/5: 32 experts do not divide into 5 groups");
  options.routing = "grouped:1/16";
  EXPECT_EQ(refusal_of(options),
            "--routing grouped:1/16: --topk 4 is above the 2 experts of 1 groups");
}

TEST(RoutingTable, RefusesTopkAboveTheExperts) {
  BenchOptions options = small_options("uniform");
  options.experts = 3;

  EXPECT_EQ(refusal_of(options), "--topk 4 is above --experts 3");
}

TEST(RoutingTable, GivesTheFirstRanksTheExpertsThatAreLeftOver) {
  EXPECT_EQ(make_expert_owner(7, 3), (std::vector<int>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(make_expert_owner(2, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(make_expert_owner(4, 2), (std::vector<int>{0, 0, 1, 1}));
}

TEST(RoutingTable, SaysSoWhenExpertsDoNotDivide) {
  BenchOptions options = small_options("uniform");
  options.experts = 60;

  EXPECT_EQ(
      make_routing_table(options, 7).notes,
      std::vector<std::string>{"60 experts do not divide by 7 ranks: the first 4 own one more"});
  EXPECT_TRUE(make_routing_table(options, 6).notes.empty());
}

TEST(RoutingTable, HasNoTokensWhereNoneAreAskedFor) {
  BenchOptions options = small_options("zipf:1");
  options.tokens = 0;

  const RoutingTable table = make_routing_table(options, 2);

  EXPECT_EQ(table.max_tokens, 0);
  EXPECT_TRUE(table.topk[1].empty());
}

Recording five_tokens() {
  Recording recording;
  recording.num_tokens = 5;
  recording.num_layers = 2;
  recording.top_k = 2;
  recording.max_id = 19;
  for (int i = 0; i < 20; ++i) recording.ids.push_back(i);
  return recording;
}

TEST(DealRecording, DealsContiguousBlocksOfOneLayer) {
  const auto dealt = deal_recording("r", five_tokens(), 1, 2, 100);

  EXPECT_EQ(dealt[0], (std::vector<int>{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(dealt[1], (std::vector<int>{14, 15, 18, 19}));
}

TEST(DealRecording, LeavesRanksEmptyWhereThereAreMoreRanksThanTokens) {
  const auto dealt = deal_recording("r", five_tokens(), 0, 7, 100);

  EXPECT_EQ(dealt[4].size(), 2u);
  EXPECT_TRUE(dealt[5].empty());
}

TEST(DealRecording, DealsFewerWhereFewerAreAskedFor) {
  const auto dealt = deal_recording("r", five_tokens(), 0, 2, 1);

  EXPECT_EQ(dealt[0], (std::vector<int>{0, 1}));
  EXPECT_EQ(dealt[1], (std::vector<int>{4, 5}));
}

TEST(DealRecording, RefusesALayerThatIsNotThere) {
  EXPECT_EQ(refusal([] { static_cast<void>(deal_recording("r", five_tokens(), 2, 2, 9)); }),
            "--layer is 2, but recording 'r' has 2 (0 to 1)");
}

TEST(DealRecording, RefusesAnExpertNamedTwice) {
  Recording recording = five_tokens();
  recording.ids[13] = recording.ids[12];

  EXPECT_EQ(refusal([&] { static_cast<void>(deal_recording("r", recording, 0, 2, 9)); }),
            "recording 'r' names expert 12 twice for token 3");
}

TEST(CountReceived, CountsATokenOncePerRankAndEverySelection) {
  RoutingTable table;
  table.top_k = 2;
  table.topk = {{0, 1, 2, 0, 3, -1}, {1, 3, 0, 2}};
  table.expert_owner = {0, 0, 1, 1};

  const std::vector<ReceivedLoad> loads = count_received(table);

  EXPECT_EQ(loads[0].num_tokens, 4);
  EXPECT_EQ(loads[0].num_selections, 5);
  EXPECT_EQ(loads[1].num_tokens, 4);
  EXPECT_EQ(loads[1].num_selections, 4);
}

}  // namespace
}  // namespace ferry::bench
