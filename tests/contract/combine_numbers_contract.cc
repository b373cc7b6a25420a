// The arithmetic of a sum: rounding, NaN, signed zero, never fused. Two ranks, one token on rank 0
// whose rows come from both; every element is one case.

#include <bit>
#include <limits>

#include "contract/reference.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

struct NumberCase {
  std::uint32_t first, second, sum;  // bits of the rows' elements, in order, and of the result
};

std::uint32_t fp32(float value) { return std::bit_cast<std::uint32_t>(value); }

// A scenario whose only token gets its two rows from `cases`, repeated over the row.
Scenario scenario_of(DType dtype, std::vector<NumberCase> cases, Layout layout) {
  Scenario scenario;
  scenario.routing = support::make_routing(2, {{{0, 1}}, {}});
  scenario.layout = layout;
  scenario.sum_dtype = dtype;
  scenario.edit_rows = [cases](HostTensor& rows, int rank) {
    for (std::int64_t i = 0; i < rows.row_elements() && rows.num_rows() > 0; ++i) {
      const NumberCase& number = cases[static_cast<std::size_t>(i) % cases.size()];
      rows.set_bits(i, rank == 0 ? number.first : number.second);
    }
  };
  return scenario;
}

void check_numbers(const EngineUnderTest& engine, DType dtype, std::vector<NumberCase> cases) {
  for (const Layout layout : kLayouts) {
    for (const CombineForm form : {CombineForm::kPull, CombineForm::kPush}) {
      Scenario scenario = scenario_of(dtype, cases, layout);
      scenario.form = form;
      scenario.y_in_arena = true;

      const HostTensor out = run(engine, scenario)[0].combined.out;

      for (std::int64_t i = 0; i < out.num_elements(); ++i) {
        const NumberCase& number = cases[static_cast<std::size_t>(i) % cases.size()];
        ASSERT_EQ(out.bits(i), number.sum)
            << std::hex << number.first << " + " << number.second << " in " << dtype_name(dtype)
            << " " << layout_name(layout);
      }
    }
  }
}

}  // namespace

TEST_P(CombineNumbersContract, RoundsBf16OnceToNearestEven) {
  check_numbers(engine(), DType::kBf16,
                {{0x3F80, 0x3B80, 0x3F80},    // 1 + 2^-8: a tie, down to even
                 {0x3F81, 0x3B80, 0x3F82},    // 1 + 2^-7 + 2^-8: a tie, up to even
                 {0x3F80, 0x3B81, 0x3F81},    // just above a tie
                 {0x3F80, 0x3B7F, 0x3F80},    // just below
                 {0x7F7F, 0x7F7F, 0x7F80},    // overflows to infinity
                 {0x7F7F, 0xFF7F, 0x0000},    // cancels to +0
                 {0x0001, 0x0001, 0x0002},    // subnormals are kept
                 {0x7F7F, 0x7B00, 0x7F80}});  // rounds up to infinity
}

TEST_P(CombineNumbersContract, MakesEveryBf16NaNCanonical) {
  check_numbers(engine(), DType::kBf16,
                {{0x7FFF, 0x3F80, 0x7FFF},  // rounding by addition turns this one into -0
                 {0xFFFF, 0x3F80, 0x7FFF},
                 {0x7F81, 0x3F80, 0x7FFF},  // signalling; truncation turns it into infinity
                 {0x3F80, 0xFF81, 0x7FFF},
                 {0x7F80, 0xFF80, 0x7FFF},  // inf - inf
                 {0x7F80, 0x3F80, 0x7F80},  // inf stays inf
                 {0xFF80, 0xFF80, 0xFF80}});
}

TEST_P(CombineNumbersContract, RoundsFp16AndMakesItsNaNsCanonical) {
  check_numbers(engine(), DType::kFp16,
                {{0x3C00, 0x1000, 0x3C00},  // 1 + 2^-11: a tie, down to even
                 {0x3C01, 0x1000, 0x3C02},  // up to even
                 {0x7BFF, 0x7BFF, 0x7C00},  // overflow
                 {0x7BFF, 0x4C00, 0x7C00},  // 65504 + 16 is a tie up to infinity
                 {0x7BFF, 0x4BFF, 0x7BFF},  // and just below it is not
                 {0x0001, 0x0001, 0x0002},  // subnormals
                 {0x0400, 0x8001, 0x03FF},
                 {0x7FFF, 0x3C00, 0x7FFF},
                 {0xFC01, 0x3C00, 0x7FFF},
                 {0x7C00, 0xFC00, 0x7FFF}});
}

TEST_P(CombineNumbersContract, MakesEveryFp32NaNCanonical) {
  check_numbers(engine(), DType::kFp32,
                {{0x7F800001, fp32(1), 0x7FFFFFFF},
                 {0xFFC00000, fp32(1), 0x7FFFFFFF},
                 {0x7F800000, 0xFF800000, 0x7FFFFFFF},
                 {fp32(1), fp32(0x1p-24F), fp32(1)},  // a tie, to even
                 {0x00000001, 0x00000001, 0x00000002}});
}

TEST_P(CombineNumbersContract, StartsAtPlusZero) {
  check_numbers(engine(), DType::kBf16, {{0x8000, 0x8000, 0x0000}});
  check_numbers(engine(), DType::kFp32, {{0x80000000, 0x80000000, 0x00000000}});
}

TEST_P(CombineNumbersContract, NeverFusesAWeightWithTheSum) {
  // w * y = (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; the last term is lost when the product rounds and
  // survives in a fused multiply-add after 1 + 2^-11 has been cancelled.
  const float factor = 1.0F + 0x1p-12F;
  Scenario scenario =
      scenario_of(DType::kFp32, {{fp32(-(1.0F + 0x1p-11F)), fp32(factor), 0}}, Layout::kByExpert);
  scenario.is_weighted = true;
  scenario.routing.weights[0] = {1.0F, factor};

  const HostTensor out = run(engine(), scenario)[0].combined.out;

  for (std::int64_t i = 0; i < out.num_elements(); ++i) ASSERT_EQ(out.bits(i), 0u) << out.at(i);
}

TEST_P(CombineNumbersContract, IgnoresTheWeightOfAMaskedSlotEvenIfNaN) {
  for (const Layout layout : {Layout::kByExpert, Layout::kPadded}) {
    Scenario scenario = mixed_scenario(layout);
    scenario.is_weighted = true;
    for (std::size_t rank = 0; rank < 3; ++rank)
      for (std::size_t i = 0; i < scenario.routing.topk[rank].size(); ++i)
        if (scenario.routing.topk[rank][i] < 0)
          scenario.routing.weights[rank][i] = std::numeric_limits<float>::quiet_NaN();

    check(scenario);
  }
}

TEST_P(CombineNumbersContract, KeepsANaNInItsOwnToken) {
  for (const Layout layout : kLayouts) {
    Scenario scenario = mixed_scenario(layout);
    scenario.edit_rows = [](HostTensor& rows, int rank) {
      if (rank == 1 && rows.num_rows() > 0) rows.set_bits(3, 0x7FC0);
    };

    check(scenario);
  }
}

TEST_P(CombineNumbersContract, LeavesTheSignOfABiasThatNothingIsAddedTo) {
  Scenario scenario;
  scenario.routing = support::make_routing(2, {{{-1, -1}}, {{0, 1}}});
  scenario.num_biases = 1;
  HostTensor negative_zero(DType::kBf16, {1, 64});
  for (std::int64_t i = 0; i < 64; ++i) negative_zero.set_bits(i, 0x8000);
  HostTensor out;

  support::run_ranks(2, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    const Route route = rank.route();
    const Delivery delivery = rank.dispatch(route);
    auto call = rank.combine_call(delivery);
    call.options.bias = rank.memory().place(negative_zero);
    rank.exchange().combine(route, call.y, call.out, call.options);
    if (rank.rank() == 0) out = rank.memory().fetch(call.out);
  });

  EXPECT_EQ(support::first_difference(out, negative_zero), "");
}

}  // namespace ferry::contract
