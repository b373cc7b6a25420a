// allocate and deallocate.

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

Scenario roomy() {
  Scenario scenario = mixed_scenario(Layout::kByRank);
  scenario.arena_bytes = 1 << 20;
  return scenario;
}

void on_one_rank(const EngineUnderTest& engine, const std::function<void(Exchange&)>& body) {
  Scenario scenario = roomy();
  scenario.routing = support::make_routing(2, {{{0, 1}}});
  support::run_ranks(1, [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    body(rank.exchange());
  });
}

}  // namespace

TEST_P(ArenaContract, HandsOutAlignedMemoryThatDoesNotOverlap) {
  on_one_rank(engine(), [](Exchange& exchange) {
    std::vector<std::pair<char*, std::int64_t>> ranges;
    for (const std::int64_t bytes : {1, 255, 256, 257, 4096, 100000}) {
      auto* pointer = static_cast<char*>(exchange.allocate(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 256, 0u);
      for (const auto& [other, length] : ranges)
        EXPECT_TRUE(pointer + bytes <= other || other + length <= pointer);
      ranges.emplace_back(pointer, bytes);
    }
  });
}

TEST_P(ArenaContract, UsesFreedMemoryAgain) {
  on_one_rank(engine(), [](Exchange& exchange) {
    for (int i = 0; i < 100; ++i) {
      void* first = exchange.allocate(400000);
      void* second = exchange.allocate(400000);
      // In either order: free ranges must merge with both neighbours.
      exchange.deallocate(i % 2 == 0 ? first : second);
      exchange.deallocate(i % 2 == 0 ? second : first);
    }
    exchange.deallocate(exchange.allocate(1 << 20));
  });
}

TEST_P(ArenaContract, SaysNeedAvailableAndLimitWhenFull) {
  on_one_rank(engine(), [](Exchange& exchange) {
    (void)exchange.allocate(600000);

    const auto outcome = support::attempt([&] { (void)exchange.allocate(600000); });

    EXPECT_EQ(outcome.code, ErrorCode::kNoResource);
    // Less than what is left, by the unit in which the engine hands memory out.
    EXPECT_THAT(outcome.message,
                ::testing::MatchesRegex(
                    "rank 0 has no 585.94 KiB \\(600000 bytes\\) in one piece in its arena: the "
                    "largest free piece is 44[68]... of 1048576 bytes; try: a larger arena_bytes"));
  });
}

TEST_P(ArenaContract, RefusesHopelessAndSenselessSizes) {
  on_one_rank(engine(), [](Exchange& exchange) {
    EXPECT_EQ(support::attempt([&] { (void)exchange.allocate(-1); }).code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(support::attempt([&] { (void)exchange.allocate(INT64_MAX); }).code,
              ErrorCode::kNoResource);
    EXPECT_EQ(support::attempt([&] {
                (void)exchange.allocate(DType::kFp32, {1ll << 40, 1ll << 40});
              }).code,
              ErrorCode::kInvalidArgument);
    exchange.deallocate(exchange.allocate(1 << 20));  // nothing was lost
  });
}

TEST_P(ArenaContract, RefusesToFreeWhatItDidNotHandOut) {
  on_one_rank(engine(), [](Exchange& exchange) {
    int foreign = 0;
    auto* pointer = static_cast<char*>(exchange.allocate(4096));
    EXPECT_EQ(support::attempt([&] { exchange.deallocate(&foreign); }).code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(support::attempt([&] { exchange.deallocate(pointer + 256); }).code,
              ErrorCode::kInvalidArgument);
    exchange.deallocate(pointer);
    EXPECT_EQ(support::attempt([&] { exchange.deallocate(pointer); }).code,
              ErrorCode::kInvalidArgument);
  });
}

TEST_P(ArenaContract, MakesDenseTensors) {
  on_one_rank(engine(), [](Exchange& exchange) {
    const TensorView tensor = exchange.allocate(DType::kFp16, {3, 5, 8});

    EXPECT_EQ(tensor.dtype, DType::kFp16);
    EXPECT_EQ(tensor.num_dims, 3);
    EXPECT_EQ(tensor.num_elements(), 120);
    EXPECT_TRUE(tensor.is_dense());
    EXPECT_EQ(tensor.strides[0], 40);
  });
}

TEST_P(ArenaContract, HoldsPagesOnlyWhileTheyAreUsed) {
  if (engine().device(0).kind != DeviceKind::kCpu) GTEST_SKIP() << "pages follow use on the CPU";
  on_one_rank(engine(), [](Exchange& exchange) {
    const std::int64_t before = exchange.counters().arena_bytes;
    void* pointer = exchange.allocate(1 << 20);
    std::memset(pointer, 1, 1 << 20);
    const std::int64_t during = exchange.counters().arena_bytes;
    exchange.deallocate(pointer);

    EXPECT_GE(during - before, 1 << 20);
    EXPECT_EQ(exchange.counters().arena_bytes, before);
    EXPECT_GE(exchange.counters().arena_peak_bytes, during);
  });
}

TEST_P(ArenaContract, SurvivesManyRoundsWithoutGrowing) {
  const Scenario scenario = roomy();
  support::run_ranks(3, [&](Group group) {
    RankUnderTest rank(group, engine(), scenario);
    std::int64_t after_warm_up = 0;
    for (int round = 0; round < 60; ++round) {
      const Route route = rank.route();
      const Delivery delivery = rank.dispatch(route);
      (void)rank.combine(route, delivery);
      if (round == 10) after_warm_up = rank.exchange().counters().arena_peak_bytes;
    }
    EXPECT_EQ(rank.exchange().counters().arena_peak_bytes, after_warm_up);
  });
}

}  // namespace ferry::contract
