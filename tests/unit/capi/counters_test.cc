#include "capi/counters.hpp"

#include "unit/capi/expect_error.hpp"

namespace ferry::capi {
namespace {

Counters some_counters() {
  Counters counters;
  counters.dispatches = 1;
  counters.combines = 2;
  counters.dispatch_logical_bytes = 3;
  counters.dispatch_wire_bytes = 4;
  counters.combine_logical_bytes = 5;
  counters.combine_wire_bytes = 6;
  counters.memory_bytes_read = 7;
  counters.memory_bytes_written = 8;
  counters.staged_bytes = 9;
  counters.dropped_rows = 10;
  counters.arena_bytes = 11;
  counters.arena_peak_bytes = 12;
  counters.wait_ns = 13;
  counters.wait_ns_by_peer = {14, 15, 16};
  return counters;
}

TEST(WriteCounters, KeepsEveryField) {
  ferry_counters got;
  ferry_counters_init(&got);
  std::int64_t waits[3] = {};

  write_counters(some_counters(), &got, waits, 3);

  EXPECT_EQ(got.dispatches, 1);
  EXPECT_EQ(got.combines, 2);
  EXPECT_EQ(got.dispatch_logical_bytes, 3);
  EXPECT_EQ(got.dispatch_wire_bytes, 4);
  EXPECT_EQ(got.combine_logical_bytes, 5);
  EXPECT_EQ(got.combine_wire_bytes, 6);
  EXPECT_EQ(got.memory_bytes_read, 7);
  EXPECT_EQ(got.memory_bytes_written, 8);
  EXPECT_EQ(got.staged_bytes, 9);
  EXPECT_EQ(got.dropped_rows, 10);
  EXPECT_EQ(got.arena_bytes, 11);
  EXPECT_EQ(got.arena_peak_bytes, 12);
  EXPECT_EQ(got.wait_ns, 13);
  EXPECT_EQ(waits[0], 14);
  EXPECT_EQ(waits[1], 15);
  EXPECT_EQ(waits[2], 16);
}

TEST(WriteCounters, NeedsNoArrayOfWaits) {
  ferry_counters got;
  ferry_counters_init(&got);

  write_counters(some_counters(), &got, nullptr, 0);

  EXPECT_EQ(got.wait_ns, 13);
}

TEST(WriteCounters, RefusesAnArrayOfAnotherLengthAndTouchesNothing) {
  ferry_counters got;
  ferry_counters_init(&got);
  std::int64_t waits[4] = {-1, -1, -1, -1};

  for (const std::size_t length : {std::size_t{0}, std::size_t{2}, std::size_t{4}})
    expect_error(ErrorCode::kInvalidArgument,
                 "num_peers is " + std::to_string(length) + ", expected the number of ranks, 3",
                 [&] { write_counters(some_counters(), &got, waits, length); });
  expect_error(ErrorCode::kInvalidArgument,
               "wait_ns_by_peer is NULL, expected an array of 3 as num_peers says",
               [&] { write_counters(some_counters(), &got, nullptr, 3); });

  EXPECT_EQ(got.wait_ns, 0);
  EXPECT_EQ(waits[0], -1);
}

}  // namespace
}  // namespace ferry::capi
