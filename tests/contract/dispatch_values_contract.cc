// What moves: element types, scales, conversion on the way.

#include <limits>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

constexpr DType kMoved[] = {DType::kBf16,    DType::kFp16,  DType::kFp32,   DType::kFp8E4m3,
                            DType::kFp8E5m2, DType::kUint8, DType::kUint16, DType::kUint32};
constexpr Quantize kFormats[] = {Quantize::kFp8, Quantize::kFp8Ue8m0};

Scenario quantized(Layout layout, Quantize quantize, std::int64_t hidden) {
  Scenario scenario = mixed_scenario(layout);
  scenario.quantize = quantize;
  scenario.hidden = hidden;
  return scenario;
}

}  // namespace

TEST_P(DispatchValuesContract, MovesEveryElementTypeBitForBit) {
  for (const Layout layout : kLayouts) {
    for (const DType dtype : kMoved) {
      Scenario scenario = mixed_scenario(layout);
      scenario.dtype = dtype;

      check(scenario, {.combines = false});
    }
  }
}

TEST_P(DispatchValuesContract, KeepsTheBitsOfMovedNaNs) {
  Scenario scenario = mixed_scenario(Layout::kByExpert);
  scenario.edit_tokens = [](HostTensor& tokens, int) {
    for (std::int64_t i = 0; i < tokens.num_elements(); i += 5)
      tokens.set_bits(i, static_cast<std::uint32_t>(0x7F81 + i % 64));  // signalling, payloads
  };

  check(scenario, {.combines = false});
}

TEST_P(DispatchValuesContract, CarriesScalesOfEveryType) {
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::kFp32, DType::kInt32, DType::kUint8, DType::kBf16}) {
      Scenario scenario = mixed_scenario(layout);
      scenario.dtype = DType::kFp8E4m3;
      scenario.scale_dtype = dtype;
      scenario.num_scales = 5;

      check(scenario, {.combines = false});
    }
  }
}

TEST_P(DispatchValuesContract, ReadsTransposedScales) {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  scenario.num_scales = 7;
  std::vector<Received> received(3);

  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const HostTensor scales = scales_of(scenario, rank.rank());
    HostTensor transposed(scales.dtype(), {7, scales.num_rows()});
    for (std::int64_t t = 0; t < scales.num_rows(); ++t)
      for (std::int64_t s = 0; s < 7; ++s)
        transposed.set_bits(s * scales.num_rows() + t, scales.bits(t * 7 + s));
    TensorView view = rank.memory().place(transposed);
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);

    DispatchOptions options = rank.dispatch_options();
    options.scales = view;
    const Route route = rank.route();
    received[static_cast<std::size_t>(rank.rank())] = fetch(
        rank.memory(), rank.exchange().dispatch(
                           route, rank.memory().place(tokens_of(scenario, rank.rank())), options));
  });

  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(delivery_problem(scenario, rank, received[static_cast<std::size_t>(rank)]), "");
}

TEST_P(DispatchValuesContract, StoresScalesTransposedWhenAsked) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.num_scales = 3;
    scenario.scale_layout = ScaleLayout::kColumnMajor;

    support::run_ranks(3, [&](Group group) {
      RankUnderTest rank(group, engine(), scenario);
      const Delivery delivery = rank.dispatch(rank.route());
      const TensorView scales = delivery.scales();
      const int rows_dim = scales.num_dims - 2;
      const std::int64_t rows = scales.shape[rows_dim];
      EXPECT_EQ(scales.shape[rows_dim + 1], 3);
      if (rows > 0) {
        EXPECT_EQ(scales.strides[rows_dim], 1) << layout_name(layout);
        EXPECT_EQ(scales.strides[rows_dim + 1], (rows + 3) / 4 * 4) << layout_name(layout);
      }
      EXPECT_EQ(delivery_problem(scenario, rank.rank(), fetch(rank.memory(), delivery)), "");
    });
  }
}

TEST_P(DispatchValuesContract, QuantizesOnTheWay) {
  for (const Layout layout : kLayouts)
    for (const Quantize quantize : kFormats)
      for (const std::int64_t hidden : {16, 128, 1536, 2880})  // short last groups among them
        check(quantized(layout, quantize, hidden), {.combines = false});
}

TEST_P(DispatchValuesContract, QuantizesWithTransposedScales) {
  for (const Layout layout : kLayouts) {
    for (const Quantize quantize : kFormats) {
      Scenario scenario = quantized(layout, quantize, 1152);
      scenario.scale_layout = ScaleLayout::kColumnMajor;

      check(scenario, {.combines = false});
    }
  }
}

TEST_P(DispatchValuesContract, QuantizesRoughValuesToTheNearestCode) {
  for (const Quantize quantize : kFormats) {
    Scenario scenario = quantized(Layout::kByExpert, quantize, 640);
    scenario.edit_tokens = [](HostTensor& tokens, int rank) {
      tokens = support::rough(DType::kBf16, tokens.shape(), static_cast<std::uint64_t>(rank) + 9);
    };

    check(scenario, {.combines = false});
  }
}

TEST_P(DispatchValuesContract, ScalesRowsByTheirWeightInTheBackwardOfAWeightedCombine) {
  for (const Layout layout : {Layout::kByExpert, Layout::kPadded}) {
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
      Scenario scenario = mixed_scenario(layout);
      scenario.dtype = dtype;
      scenario.scale_by_weights = true;
      scenario.edit_tokens = [dtype](HostTensor& tokens, int rank) {
        tokens = support::rough(dtype, tokens.shape(), static_cast<std::uint64_t>(rank) + 3);
      };
      // Not powers of two: the product must round.
      for (auto& weights : scenario.routing.weights)
        for (float& weight : weights) weight *= 1.0F / 3.0F;

      check(scenario, {.combines = false});
    }
  }
}

}  // namespace ferry::contract
