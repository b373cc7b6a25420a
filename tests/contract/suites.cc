#include "contract/suites.hpp"

#include "contract/reference.hpp"
#include "support/spawn.hpp"

namespace ferry::contract {

void EngineTest::check(const Scenario& scenario, const RunOptions& options) {
  expect_right(scenario, run(engine(), scenario, options), options);
}

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::kByRank: return "by_rank";
    case Layout::kByExpert: return "by_expert";
    case Layout::kPadded: return "padded";
  }
  return "?";
}

Scenario mixed_scenario(Layout layout) {
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = 12,
                                              .top_k = 3,
                                              .num_tokens = support::uneven_tokens(3, 9),
                                              .pattern = support::Pattern::kSomeMasked,
                                              .expert_owner = {}},
                                             42);
  scenario.layout = layout;
  return scenario;
}

Scenario random_scenario(Layout layout,
                         std::vector<std::int64_t> num_tokens,
                         support::Pattern pattern,
                         int num_experts,
                         int top_k) {
  Scenario scenario;
  scenario.routing = support::random_routing({.num_experts = num_experts,
                                              .top_k = top_k,
                                              .num_tokens = std::move(num_tokens),
                                              .pattern = pattern,
                                              .expert_owner = {}},
                                             17);
  scenario.layout = layout;
  return scenario;
}

std::vector<support::Outcome> attempt_on_all(const EngineUnderTest& engine,
                                             const Scenario& scenario,
                                             const std::function<void(RankUnderTest& rank)>& call) {
  std::vector<support::Outcome> outcomes(static_cast<std::size_t>(scenario.routing.num_ranks()));
  support::run_ranks(scenario.routing.num_ranks(), [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    outcomes[static_cast<std::size_t>(rank.rank())] = rank.attempt([&] { call(rank); });
    // Nobody leaves while another rank is still inside its call.
    group.barrier();
  });
  return outcomes;
}

}  // namespace ferry::contract
