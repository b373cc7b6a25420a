#pragma once

#include <gtest/gtest.h>

#include "contract/engine.hpp"
#include "contract/scenario.hpp"
#include "support/spawn.hpp"

// The suites that every engine passes. Tests live in one file per suite.

namespace ferry::contract {

class EngineTest : public ::testing::TestWithParam<EngineUnderTest> {
 protected:
  [[nodiscard]] static const EngineUnderTest& engine() { return GetParam(); }
  [[nodiscard]] static bool is_exact() { return GetParam().sizing == Sizing::kExact; }
  [[nodiscard]] static bool is_low_latency() { return GetParam().mode == Mode::kLowLatency; }

  // Runs a scenario and compares everything with the oracle.
  static void check(const Scenario& scenario, const RunOptions& options = {});
};

class DispatchContract : public EngineTest {};
class DispatchValuesContract : public EngineTest {};
class OutputsContract : public EngineTest {};
class CombineContract : public EngineTest {};
class CombineNumbersContract : public EngineTest {};
class CombineWeightsContract : public EngineTest {};
class RouteContract : public EngineTest {};
class ReuseContract : public EngineTest {};
class SplitContract : public EngineTest {};
class SequenceContract : public EngineTest {};
class LimitsContract : public EngineTest {};
class OwnerMapContract : public EngineTest {};
class ArenaContract : public EngineTest {};
class CountersContract : public EngineTest {};
class BadInputContract : public EngineTest {};
class ConfigContract : public EngineTest {};
class EdgeCases : public EngineTest {};
class FieldCases : public EngineTest {};
class ShapeGrid : public EngineTest {};
class Stress : public EngineTest {};

inline constexpr Layout kLayouts[] = {Layout::kByRank, Layout::kByExpert, Layout::kPadded};
[[nodiscard]] const char* layout_name(Layout layout);

// Three ranks, uneven T up to 9, 12 experts, top-3, a quarter of the ids masked.
[[nodiscard]] Scenario mixed_scenario(Layout layout);

// A seeded random batch of the edge cases and the field cases.
[[nodiscard]] Scenario random_scenario(Layout layout,
                                       std::vector<std::int64_t> num_tokens,
                                       support::Pattern pattern,
                                       int num_experts = 12,
                                       int top_k = 3);

// One call on every rank of a scenario; what it threw, per rank.
[[nodiscard]] std::vector<support::Outcome> attempt_on_all(
    const EngineUnderTest& engine,
    const Scenario& scenario,
    const std::function<void(RankUnderTest& rank)>& call);

}  // namespace ferry::contract
