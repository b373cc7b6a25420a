// Tensors that do not fit: the message names the tensor, got and expected; the group lives.
//
// A tensor that is wrong on one rank is an error on all of them: nobody waits for a rank that has
// thrown.

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

using Wrong = std::function<void(TensorView& tensor)>;

enum class Input { kTopk, kX, kWeights, kScales, kY, kOut, kBias, kCombineWeights, kRowWeights };

// Which operation reads it.
bool belongs_to_combine(Input input) {
  return input == Input::kY || input == Input::kOut || input == Input::kBias ||
         input == Input::kCombineWeights || input == Input::kRowWeights;
}

Scenario scenario_for_bad_input() {
  Scenario scenario = mixed_scenario(Layout::kByExpert);
  scenario.num_scales = 4;
  scenario.num_biases = 1;
  scenario.is_weighted = true;
  scenario.returns_weights = true;
  return scenario;
}

// Rank 1 gives a wrong tensor; every rank must refuse, naming rank 1 or not, and work again.
void expect_refused(const EngineUnderTest& engine,
                    Input input,
                    const Wrong& spoil,
                    const std::vector<std::string>& parts) {
  const Scenario scenario = scenario_for_bad_input();
  std::vector<support::Outcome> outcomes(3);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    const int me = rank.rank();
    EngineMemory& memory = rank.memory();
    const auto maybe = [&](Input which, TensorView& tensor) {
      if (me == 1 && which == input) spoil(tensor);
    };
    support::Outcome& outcome = outcomes[static_cast<std::size_t>(me)];
    const auto note = [&](const std::function<void()>& call) { outcome = rank.attempt(call); };

    TensorView topk = memory.place(topk_of(scenario, me));
    maybe(Input::kTopk, topk);
    const RouteOptions options{.layout = {}, .sizing = engine.sizing};
    if (input == Input::kTopk)
      note([&] { (void)rank.dispatch(rank.exchange().route(topk, options)); });

    const Route route = rank.route();
    if (!belongs_to_combine(input) && input != Input::kTopk) {
      TensorView x = memory.place(tokens_of(scenario, me));
      DispatchOptions dispatch = rank.dispatch_options();
      maybe(Input::kX, x);
      maybe(Input::kWeights, dispatch.topk_weights);
      maybe(Input::kScales, dispatch.scales);
      note([&] { (void)rank.exchange().dispatch(route, x, dispatch); });
    }
    const Delivery delivery = rank.dispatch(route);
    if (belongs_to_combine(input)) {
      auto call = rank.combine_call(delivery);
      maybe(Input::kY, call.y);
      maybe(Input::kOut, call.out);
      maybe(Input::kBias, call.options.bias);
      maybe(Input::kCombineWeights, call.options.topk_weights);
      maybe(Input::kRowWeights, call.options.row_weights);
      note([&] { rank.exchange().combine(route, call.y, call.out, call.options); });
    }

    // The group lives and nothing was disturbed.
    EXPECT_EQ(delivery_problem(scenario, me, fetch(memory, delivery)), "");
    EXPECT_EQ(combine_problem(scenario, me, rank.combine(route, delivery)), "");
  });

  for (const support::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << outcome.message;
    for (const std::string& part : parts)
      EXPECT_NE(outcome.message.find(part), std::string::npos) << part << ": " << outcome.message;
  }
}

Wrong typed(DType dtype) {
  return [dtype](TensorView& tensor) { tensor.dtype = dtype; };
}
Wrong shaped(int dim, std::int64_t size) {
  return [=](TensorView& tensor) { tensor.shape[dim] = size; };
}
Wrong flattened() {
  return [](TensorView& tensor) {
    tensor.num_dims = 1;
    tensor.shape[0] = 4;
    tensor.strides[0] = 1;
  };
}
Wrong with_gaps_in_rows() {
  return [](TensorView& tensor) { tensor.strides[1] = 2; };
}
Wrong nowhere() {
  return [](TensorView& tensor) { tensor.data = nullptr; };
}
Wrong elsewhere() {
  return [](TensorView& tensor) { tensor.device = Device::cuda(3); };
}
Wrong negative() {
  return [](TensorView& tensor) { tensor.shape[0] = -1; };
}
Wrong missing() {
  return [](TensorView& tensor) { tensor = TensorView(); };
}

}  // namespace

TEST_P(BadInputContract, RefusesWrongTopkIds) {
  expect_refused(engine(), Input::kTopk, typed(DType::kFp32),
                 {"topk_idx", "fp32", "int32", "int64"});
  expect_refused(engine(), Input::kTopk, shaped(1, 2), {"topk_idx", "2", "3"});
  expect_refused(engine(), Input::kTopk, flattened(), {"topk_idx", "[4]"});
  expect_refused(engine(), Input::kTopk, nowhere(), {"topk_idx", "null"});
  expect_refused(engine(), Input::kTopk, with_gaps_in_rows(), {"topk_idx", "dense"});
  expect_refused(engine(), Input::kTopk, negative(), {"topk_idx", "-1", "negative"});
  expect_refused(engine(), Input::kTopk, missing(), {"topk_idx"});
}

TEST_P(BadInputContract, RefusesIdsOnAnotherDevice) {
  expect_refused(engine(), Input::kTopk, elsewhere(), {"topk_idx", "lies on cuda:3"});
}

TEST_P(BadInputContract, RefusesWrongTokens) {
  expect_refused(engine(), Input::kX, typed(DType::kInt64), {"x", "int64"});
  expect_refused(engine(), Input::kX, shaped(0, 3), {"x", "3"});
  expect_refused(engine(), Input::kX, flattened(), {"x", "[4]"});
  expect_refused(engine(), Input::kX, nowhere(), {"x", "null"});
  expect_refused(engine(), Input::kX, with_gaps_in_rows(), {"x", "dense"});
  expect_refused(engine(), Input::kX, missing(), {"x"});
}

TEST_P(BadInputContract, RefusesRowsThatAreNoMultipleOf16Bytes) {
  expect_refused(engine(), Input::kX, shaped(1, 63), {"x", "126", "16"});
}

TEST_P(BadInputContract, RefusesRowsWiderThanConfigured) {
  expect_refused(engine(), Input::kX,
                 [](TensorView& tensor) {
                   tensor.shape[1] = 128;
                   tensor.strides[0] = 128;
                 },
                 {"x", "256", "128"});
}

TEST_P(BadInputContract, RefusesWrongWeights) {
  expect_refused(engine(), Input::kWeights, typed(DType::kBf16), {"topk_weights", "bf16", "fp32"});
  expect_refused(engine(), Input::kWeights, shaped(1, 2), {"topk_weights", "2", "3"});
  expect_refused(engine(), Input::kWeights, shaped(0, 1), {"topk_weights", "1"});
  expect_refused(engine(), Input::kWeights, nowhere(), {"topk_weights", "null"});
}

TEST_P(BadInputContract, RefusesWrongScales) {
  expect_refused(engine(), Input::kScales, typed(DType::kInt64), {"scales", "int64"});
  expect_refused(engine(), Input::kScales, shaped(0, 1), {"scales", "1"});
  expect_refused(engine(), Input::kScales, shaped(1, 5), {"scales", "20", "16"});
}

TEST_P(BadInputContract, RefusesWrongRowsOfACombine) {
  expect_refused(engine(), Input::kY, typed(DType::kFp8E4m3), {"y", "fp8_e4m3", "bf16"});
  expect_refused(engine(), Input::kY, shaped(0, 1), {"y", "1"});
  expect_refused(engine(), Input::kY, nowhere(), {"y", "null"});
  expect_refused(engine(), Input::kY, missing(), {"y"});
}

TEST_P(BadInputContract, RefusesAWrongOut) {
  expect_refused(engine(), Input::kOut, typed(DType::kFp16), {"out", "fp16", "bf16"});
  expect_refused(engine(), Input::kOut, shaped(0, 2), {"out", "2"});
  expect_refused(engine(), Input::kOut, shaped(1, 32), {"out", "32", "64"});
  expect_refused(engine(), Input::kOut, nowhere(), {"out", "null"});
}

TEST_P(BadInputContract, RefusesWrongBiasesAndWeightsOfACombine) {
  expect_refused(engine(), Input::kBias, typed(DType::kFp32), {"bias", "fp32", "bf16"});
  expect_refused(engine(), Input::kBias, shaped(0, 1), {"bias", "1"});
  expect_refused(engine(), Input::kCombineWeights, typed(DType::kFp16),
                 {"topk_weights", "fp16", "fp32"});
  expect_refused(engine(), Input::kCombineWeights, shaped(1, 1), {"topk_weights", "3"});
  expect_refused(engine(), Input::kRowWeights, typed(DType::kInt32), {"row_weights", "int32"});
  expect_refused(engine(), Input::kRowWeights, missing(), {"row_weights"});
}

TEST_P(BadInputContract, RefusesAWeightedCombineByRank) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  scenario.is_weighted = true;

  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    const Route route = rank.route();
    (void)rank.combine(route, rank.dispatch(route));
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("weighted"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("by_rank"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("one row per expert"), std::string::npos) << outcome.message;
  }
}

TEST_P(BadInputContract, RefusesToScaleByWeightsThatAreMissing) {
  Scenario scenario = mixed_scenario(Layout::kByExpert);
  scenario.scale_by_weights = true;
  scenario.has_weights = false;

  const auto outcomes = attempt_on_all(
      engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("scale_by_weights"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("topk_weights"), std::string::npos) << outcome.message;
  }
}

TEST_P(BadInputContract, RefusesToQuantizeWhatIsNotBf16) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  scenario.quantize = Quantize::kFp8;
  scenario.dtype = DType::kFp16;

  const auto outcomes = attempt_on_all(
      engine(), scenario, [](RankUnderTest& rank) { (void)rank.dispatch(rank.route()); });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("fp16"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("bf16"), std::string::npos) << outcome.message;
  }
}

TEST_P(BadInputContract, RefusesACombineBeforeAnyDispatch) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  const auto outcomes = attempt_on_all(engine(), scenario, [&](RankUnderTest& rank) {
    const Route route = rank.route();
    const std::int64_t rows = 3 * scenario.token_limit();
    HostTensor y(DType::kBf16, {rows, 64});
    HostTensor out(DType::kBf16, {scenario.routing.num_tokens(rank.rank()), 64});
    rank.exchange().combine(route, rank.memory().place(y), rank.memory().place(out));
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("dispatch"), std::string::npos) << outcome.message;
  }
}

TEST_P(BadInputContract, RefusesAPullOfRowsOutsideTheArena) {
  Scenario scenario = mixed_scenario(Layout::kByExpert);
  scenario.form = CombineForm::kPull;

  const auto outcomes = attempt_on_all(engine(), scenario, [](RankUnderTest& rank) {
    const Route route = rank.route();
    (void)rank.combine(route, rank.dispatch(route));
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("arena"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("pull"), std::string::npos) << outcome.message;
  }
}

TEST_P(BadInputContract, RefusesOutputsThatAreTooSmall) {
  Scenario scenario = mixed_scenario(Layout::kByExpert);
  const auto outcomes = attempt_on_all(engine(), scenario, [&](RankUnderTest& rank) {
    const Route route = rank.route();
    DispatchOptions options = rank.dispatch_options();
    if (rank.rank() == 1)
      options.outputs.tokens = rank.memory().place(HostTensor(DType::kBf16, {1, 64}));
    (void)rank.exchange().dispatch(route, rank.memory().place(tokens_of(scenario, rank.rank())),
                                   options);
  });

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.message.find("outputs.tokens"), std::string::npos) << outcome.message;
  }
}

}  // namespace ferry::contract
