#include "bench/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "result_fixture.hpp"

namespace ferry::bench {
namespace {

// Two ranks, three iterations; rank 1 is slower in the second.
std::vector<RankRecord> two_records() {
  std::vector<RankRecord> records(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankRecord& record = records[size_t(rank)];
    record.rank = rank;
    record.threads = 1;
    record.route.ns = {1000, 1000, 1000};
    record.dispatch.ns = {10'000, 20'000, 30'000};
    record.combine.ns = {5'000, 5'000, 5'000};
    record.dispatch.logical_bytes = 100'000;
    record.dispatch.wire_bytes = 40'000;
    record.dispatch.read_bytes = 150'000;
    record.dispatch.written_bytes = 100'000;
    record.round_trip_ns = {15'000, 15'000, 18'000};
    record.check.rows_planned = record.check.rows_compared = 4;
    record.check.tokens_compared = 3;
    record.arena_peak_bytes = 1000 + rank;
    record.output_bytes = 900 + rank;
    record.wait_ns = 70;
    record.wait_ns_by_peer = {rank, 70 - rank};
  }
  records[1].dispatch.ns[1] = 25'000;
  return records;
}

Report make(const BenchOptions& options, const Batch& batch) {
  PingPong ping_pong;
  ping_pong.is_measured = true;
  ping_pong.payload_us = 5;
  const Ceiling ceiling = {50, 2, "memcpy", 1 << 28};
  return make_report({options, batch, 1, 2, "host", ceiling, ping_pong}, two_records());
}

// Both ranks on GPUs of one host, of which there are `num_devices`.
Report make_on_cuda(const BenchOptions& options, const Batch& batch, int num_devices) {
  std::vector<RankRecord> records = two_records();
  for (RankRecord& record : records) {
    record.threads = 0;
    record.device = "NVIDIA H200";
    record.num_devices = num_devices;
    record.batched = {860, 750, 990};
  }
  records[1].batched.dispatch_us = 870;
  const Ceiling ceiling = {4200, 0, "device copy", 1 << 29};
  return make_report({options, batch, 1, 2, "host", ceiling, {}}, records);
}

TEST(MakeReport, TakesTheSlowestRankOfEachIteration) {
  const Batch batch = small_batch(Layout::kByRank);
  const BenchOptions options;
  const Report report = make(options, batch);

  EXPECT_DOUBLE_EQ(report.dispatch.median_us, 25);
  EXPECT_DOUBLE_EQ(report.dispatch.min_us, 10);
  EXPECT_DOUBLE_EQ(report.dispatch.max_us, 30);
}

TEST(MakeReport, AddsTheBytesOfAllRanks) {
  const Batch batch = small_batch(Layout::kByRank);
  const BenchOptions options;
  const Report report = make(options, batch);

  EXPECT_EQ(report.dispatch.logical_bytes, 200'000);
  EXPECT_EQ(report.dispatch.wire_bytes, 80'000);
  EXPECT_DOUBLE_EQ(report.dispatch.logical_gbs, 8);  // 200 kB in 25 us
  EXPECT_DOUBLE_EQ(report.dispatch.memory_gbs, 20);  // 500 kB in 25 us
  EXPECT_DOUBLE_EQ(report.dispatch.ceiling_ratio, 0.4);
}

TEST(MakeReport, ShowsTheRankWhoseMemoryGrewMost) {
  const Batch batch = small_batch(Layout::kByRank);
  const BenchOptions options;
  const Report report = make(options, batch);

  EXPECT_EQ(report.peak_bytes, 1001);
  EXPECT_EQ(report.output_bytes, 901);
  EXPECT_EQ(report.peak_allowed_bytes, 901 + 90 + (32 << 20));
}

TEST(MakeReport, HoldsTheRoundTripAgainstThePingPong) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.mode = Mode::kLowLatency;
  const Report report = make(options, batch);

  EXPECT_DOUBLE_EQ(report.round_trip.median_us, 15);
  EXPECT_DOUBLE_EQ(report.round_trip.ratio, 3);
}

TEST(MakeReport, CountsAsDeepEpDoes) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.preset = "deepep-intranode";
  const Report report = make(options, batch);

  // Four tokens of 512 bytes arrive at each rank; mean times 20 us and 21.667 us.
  EXPECT_NEAR(report.deepep.dispatch_gbs, 2048 * (1 / 20.0 + 3 / 65.0) / 2 * 1e-3, 1e-9);
  EXPECT_NEAR(report.deepep.combine_gbs, 2048 / 5.0 * 1e-3, 1e-9);
}

TEST(MakeReport, TakesTheSlowestRankOfOperationsEnqueuedTogether) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.engine = "cuda";
  const Report report = make_on_cuda(options, batch, 1);

  EXPECT_DOUBLE_EQ(report.batched.dispatch_us, 870);
  EXPECT_DOUBLE_EQ(report.batched.combine_us, 750);
  EXPECT_DOUBLE_EQ(report.graph.dispatch_us, 0);
}

TEST(MakeReport, SeesThatRanksShareACard) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.engine = "cuda";

  EXPECT_TRUE(make_on_cuda(options, batch, 1).is_card_shared);
  EXPECT_FALSE(make_on_cuda(options, batch, 2).is_card_shared);
  EXPECT_FALSE(make({}, batch).is_card_shared);
}

TEST(FormatJson, SaysSmsAndDeviceInPlaceOfThreads) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.engine = "cuda";
  options.sms = 16;
  const auto json = nlohmann::json::parse(format_json(make_on_cuda(options, batch, 1)));

  EXPECT_FALSE(json.contains("threads"));
  EXPECT_EQ(json["sms"], 16);
  EXPECT_EQ(json["device"], "NVIDIA H200");
  EXPECT_EQ(json["shared_card"], true);
  EXPECT_EQ(json["batched"]["dispatch_us"], 870);
  EXPECT_EQ(json["batched"]["combine_us"], 750);
  EXPECT_EQ(json["batched"]["route_dispatch_us"], 990);
  EXPECT_FALSE(json.contains("graph"));
  EXPECT_EQ(json["ceiling"]["kind"], "device copy");
  EXPECT_FALSE(json["ceiling"].contains("threads"));
}

TEST(FormatJson, HasEveryFieldOfTheDesign) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.is_checked = true;
  const auto json = nlohmann::json::parse(format_json(make(options, batch)));

  for (const char* field :
       {"schema",  "ferry_version", "host",    "threads",  "engine",  "ranks", "nodes",
        "tokens",  "hidden",        "experts", "topk",     "dtype",   "mode",  "layout",
        "routing", "iters",         "route",   "dispatch", "combine", "check", "peak_bytes"})
    EXPECT_TRUE(json.contains(field)) << field;
  for (const char* op : {"route", "dispatch", "combine"})
    for (const char* field : {"median_us", "min_us", "max_us", "logical_bytes", "wire_bytes",
                              "logical_gbs", "wire_gbs", "ceiling_gbs", "ceiling_ratio"})
      EXPECT_TRUE(json[op].contains(field)) << op << "." << field;
  EXPECT_EQ(json["check"]["ok"], true);
  EXPECT_EQ(json["check"]["rows_compared"], 8);
  EXPECT_EQ(json["check"]["mismatches"], 0);
  EXPECT_EQ(json["counters"]["wait_ns_by_peer"][1][1], 69);
  EXPECT_EQ(json["counters"]["staged_bytes"], 0);
}

TEST(FormatTable, IsPlainTextWithoutATerminal) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.is_checked = true;
  const std::string text = format_table(make(options, batch), false);

  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, testing::HasSubstr("dispatch      25.0 us     10.0 us     30.0 us"));
  EXPECT_THAT(text, testing::HasSubstr("ok: 8 rows and 6 results compared with the oracle"));
}

TEST(FormatTable, SaysThatTheCardIsShared) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.engine = "cuda";
  options.sms = 16;
  const std::string text = format_table(make_on_cuda(options, batch, 1), false);

  EXPECT_THAT(text, testing::HasSubstr("cuda ht exchange: 2 ranks on host, NVIDIA H200 (shared "
                                       "card), 16 SMs each"));
  EXPECT_THAT(text,
              testing::HasSubstr("back to back dispatch 870.0 us, combine 750.0 us, new route "
                                 "and dispatch 990.0 us; slowest rank, 20 of each"));
  EXPECT_THAT(text, testing::HasSubstr("4200.00 GB/s read and written (device copy)"));
}

TEST(Record, TravelsUnchanged) {
  RankRecord record = two_records()[1];
  record.device = "NVIDIA H200";
  record.num_devices = 8;
  record.graph = {25, 44, 0};
  record.check.first_difference = "rank 1 row 0: \"quoted\"\n\xFF";

  const RankRecord back = parse_record(format_record(record));

  EXPECT_EQ(back.dispatch.ns, record.dispatch.ns);
  EXPECT_EQ(back.wait_ns_by_peer, record.wait_ns_by_peer);
  EXPECT_EQ(back.arena_peak_bytes, 1001);
  EXPECT_EQ(back.device, "NVIDIA H200");
  EXPECT_EQ(back.num_devices, 8);
  EXPECT_EQ(back.graph.combine_us, 44);
  EXPECT_TRUE(back.check.first_difference.starts_with("rank 1 row 0: \"quoted\"\n"));
}

TEST(Record, RefusesWhatIsNone) { EXPECT_ANY_THROW(static_cast<void>(parse_record("{}"))); }

}  // namespace
}  // namespace ferry::bench
