// Deliveries into memory of the caller, inside and outside the arena, and posted early.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

enum class Place { kArena, kOutside };

// Outputs for one rank with room for `rows` rows, everything given that the layout has.
class CallerOutputs {
 public:
  CallerOutputs(RankUnderTest& rank, const Scenario& scenario, Place place, std::int64_t rows)
      : rank_(rank), place_(place) {
    const std::int64_t top_k = scenario.routing.top_k;
    const bool is_by_rank = scenario.layout == Layout::kByRank;
    const auto rows_shape = [&](std::initializer_list<std::int64_t> inner) {
      std::vector<std::int64_t> shape = {rows};
      if (scenario.layout == Layout::kPadded)
        shape = {rank.exchange().num_local_experts(), rows / rank.exchange().num_local_experts()};
      shape.insert(shape.end(), inner);
      return shape;
    };
    outputs.tokens = make(scenario.dtype, rows_shape({scenario.hidden}));
    if (scenario.num_scales > 0)
      outputs.scales = make(scenario.scale_dtype, rows_shape({scenario.num_scales}));
    if (is_by_rank) outputs.topk_idx = make(scenario.topk_dtype, rows_shape({top_k}));
    if (scenario.has_weights)
      outputs.topk_weights = make(DType::kFp32, is_by_rank ? rows_shape({top_k}) : rows_shape({}));
  }

  DeliveryOutputs outputs;

 private:
  TensorView make(DType dtype, std::vector<std::int64_t> shape) {
    HostTensor poison(dtype, std::move(shape));
    poison.fill(std::byte{0xEE});
    if (place_ == Place::kOutside) return rank_.memory().place(poison);
    TensorView view = poison.view();
    view.data = rank_.exchange().allocate(static_cast<std::int64_t>(poison.bytes().size()));
    view.device = rank_.exchange().config().device;
    rank_.memory().overwrite(view, poison);
    return view;
  }

  RankUnderTest& rank_;
  Place place_;
};

Scenario scenario_with_scales(Layout layout) {
  Scenario scenario = mixed_scenario(layout);
  scenario.num_scales = 4;
  return scenario;
}

std::int64_t rows_for(const Scenario& scenario, const EngineUnderTest& engine, int rank) {
  if (scenario.layout == Layout::kPadded)
    return static_cast<std::int64_t>(scenario.routing.experts_of(rank).size()) * 3 *
           scenario.token_limit();
  // Worst-case sizing needs room for the worst case; exact sizing for what arrives.
  if (engine.sizing == Sizing::kExact) return expected_rows(scenario, rank).num_rows + 2;
  return 3 * scenario.token_limit() * scenario.routing.top_k;
}

void check_outputs(const EngineUnderTest& engine,
                   const Scenario& scenario,
                   std::function<Place(int rank)> place,
                   bool is_posted) {
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    const Route route = rank.route();
    const CallerOutputs caller(rank, scenario, place(rank.rank()),
                               rows_for(scenario, engine, rank.rank()));
    DispatchOptions options = rank.dispatch_options();
    if (is_posted)
      rank.exchange().post(route, caller.outputs);
    else
      options.outputs = caller.outputs;

    const Delivery delivery = rank.exchange().dispatch(
        route, rank.memory().place(tokens_of(scenario, rank.rank())), options);

    EXPECT_EQ(delivery.tokens().data, caller.outputs.tokens.data);
    EXPECT_EQ(delivery.topk_weights().data, caller.outputs.topk_weights.data);
    EXPECT_EQ(delivery.scales().data, caller.outputs.scales.data);
    EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "")
        << describe(scenario);
    const auto combined = rank.combine(route, delivery);
    EXPECT_EQ(combine_problem(scenario, rank.rank(), combined), "") << describe(scenario);
  });
}

}  // namespace

TEST_P(OutputsContract, WritesIntoCallerTensorsOfTheArena) {
  for (const Layout layout : kLayouts)
    check_outputs(
        engine(), scenario_with_scales(layout), [](int) { return Place::kArena; }, false);
}

TEST_P(OutputsContract, WritesIntoCallerTensorsOutsideTheArena) {
  for (const Layout layout : kLayouts)
    check_outputs(
        engine(), scenario_with_scales(layout), [](int) { return Place::kOutside; }, false);
}

TEST_P(OutputsContract, LetsEachRankChooseWhereItsOutputsLie) {
  for (const Layout layout : kLayouts)
    check_outputs(
        engine(), scenario_with_scales(layout),
        [](int rank) { return rank == 1 ? Place::kOutside : Place::kArena; }, false);
}

TEST_P(OutputsContract, WritesIntoPostedOutputs) {
  for (const Layout layout : kLayouts)
    check_outputs(
        engine(), scenario_with_scales(layout), [](int) { return Place::kArena; }, true);
}

TEST_P(OutputsContract, KeepsThreeOwnDeliveriesReadable) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    std::vector<Delivery> deliveries;
    for (int i = 0; i < 3; ++i) deliveries.push_back(rank.dispatch(route));

    for (const Delivery& delivery : deliveries)
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
  });
}

TEST_P(OutputsContract, RefusesToReadADeliveryWhoseMemoryIsInUseAgain) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  const auto outcomes = attempt_on_all(engine(), scenario, [&](RankUnderTest& rank) {
    const Route route = rank.route();
    std::vector<Delivery> deliveries;
    for (int i = 0; i < 4; ++i) deliveries.push_back(rank.dispatch(route));
    (void)deliveries[3].tokens();
    (void)deliveries[0].tokens();
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << outcome.message;
    EXPECT_NE(outcome.message.find("delivery"), std::string::npos) << outcome.message;
  }
}

}  // namespace ferry::contract
