// Weights on their way back to the token's owner.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {

TEST_P(CombineWeightsContract, GathersRowWeightsBesideTheSum) {
  for (const Layout layout : kLayouts) {
    for (const CombineForm form : {CombineForm::kPull, CombineForm::kPush}) {
      Scenario scenario = mixed_scenario(layout);
      scenario.returns_weights = true;
      scenario.form = form;
      scenario.y_in_arena = true;

      check(scenario);
    }
  }
}

TEST_P(CombineWeightsContract, GathersRowWeightsBesideAWeightedSum) {
  for (const Layout layout : {Layout::kByExpert, Layout::kPadded}) {
    Scenario scenario = mixed_scenario(layout);
    scenario.returns_weights = true;
    scenario.is_weighted = true;

    check(scenario);
  }
}

TEST_P(CombineWeightsContract, GathersRowWeightsAlone) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.returns_weights = true;

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Route route = rank.route();
      const Delivery delivery = rank.dispatch(route);
      const auto call = rank.combine_call(delivery);

      rank.exchange().combine_weights(route, call.options.row_weights,
                                      call.options.combined_weights);

      EXPECT_EQ(support::first_difference(rank.fetch_combined(call).weights,
                                          expected_combined_weights(scenario, rank.rank())),
                "")
          << describe(scenario);
    });
  }
}

TEST_P(CombineWeightsContract, ReturnsTheWeightsThatADispatchDelivered) {
  for (const Layout layout : kLayouts) {
    const Scenario scenario = mixed_scenario(layout);

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Route route = rank.route();
      const Delivery delivery = rank.dispatch(route);
      HostTensor expected = weights_of(scenario, rank.rank());
      for (std::int64_t i = 0; i < expected.num_elements(); ++i)
        if (scenario.routing
                .topk[static_cast<std::size_t>(rank.rank())][static_cast<std::size_t>(i)] < 0)
          expected.set(i, 0.0);
      HostTensor poison(DType::kFp32, expected.shape());
      poison.fill(std::byte{0xA5});
      const TensorView returned = rank.memory().place(poison);

      rank.exchange().combine_weights(route, delivery.topk_weights(), returned);

      EXPECT_EQ(support::first_difference(rank.memory().fetch(returned), expected), "")
          << describe(scenario);
    });
  }
}

}  // namespace ferry::contract
