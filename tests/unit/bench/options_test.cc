#include "bench/options.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "ferry/error.hpp"

namespace ferry::bench {
namespace {

std::string refusal(const std::function<void(BenchOptions&)>& change) {
  BenchOptions options;
  change(options);
  try {
    check_options(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(CheckOptions, AcceptsTheDefaults) {
  EXPECT_EQ(refusal([](BenchOptions&) {}), "accepted");
}

TEST(CheckOptions, KnowsBothEngines) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.engine = "cuda"; }), "accepted");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.engine = "tpu"; }),
            "--engine 'tpu' is unknown, expected cpu or cuda");
}

TEST(CheckOptions, RefusesWhatBelongsToTheOtherEngine) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.sms = 16; }),
            "--sms is 16, but the cpu engine has none; try: --threads, or --engine cuda");
  const auto on_cuda = [](int sms, int threads) {
    return [=](BenchOptions& o) {
      o.engine = "cuda";
      o.sms = sms;
      o.threads = threads;
    };
  };
  EXPECT_EQ(refusal(on_cuda(16, 0)), "accepted");
  EXPECT_EQ(refusal(on_cuda(-1, 0)), "--sms is -1, expected 0 or more");
  EXPECT_EQ(refusal(on_cuda(0, 2)),
            "--threads is 2, but only the cpu engine moves rows with threads; try: --sms, or "
            "--thread-ranks for ranks that are threads");
}

TEST(CheckOptions, RefusesThreadRanksThatOthersStart) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.has_thread_ranks = true; }), "accepted");
  EXPECT_EQ(refusal([](BenchOptions& o) {
              o.has_thread_ranks = true;
              o.launch = Launch::kEnv;
            }),
            "--thread-ranks starts all ranks in this process, --launch env joins a launcher's; "
            "try: one of the two");
  EXPECT_EQ(refusal([](BenchOptions& o) {
              o.has_thread_ranks = true;
              o.node_rank = 0;
              o.num_nodes = o.ranks_per_node = 2;
              o.address = "host:1234";
            }),
            "--thread-ranks starts all ranks in this process, --address is for several hosts; "
            "try: one of the two");
}

TEST(CheckOptions, NamesOptionValueAndBound) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.ranks = 0; }), "--ranks is 0, expected 1 or more");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.ranks = 2049; }),
            "--ranks is 2049, expected 2048 or less");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.tokens = -1; }), "--tokens is -1, expected 0 or more");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.experts = 4097; }),
            "--experts is 4097, expected 4096 or less");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.topk = 33; }), "--topk is 33, expected 32 or less");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.iters = 0; }), "--iters is 0, expected 1 or more");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.nodes = 0; }), "--nodes is 0, expected 1 or more");
  EXPECT_EQ(refusal([](BenchOptions& o) { o.dtype = "fp4"; }),
            "--dtype 'fp4' is unknown, expected bf16, fp8 or fp8-ue8m0");
}

TEST(CheckOptions, RefusesRowsThatAreNoMultipleOf16Bytes) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.hidden = 100; }),
            "--hidden is 100, expected a multiple of 8 (rows of bf16 are multiples of 16 bytes)");
  EXPECT_EQ(refusal([](BenchOptions& o) {
              o.hidden = 104;
              o.dtype = "fp8";
            }),
            "--hidden is 104, expected a multiple of 16 (rows of fp8 are multiples of 16 bytes)");
}

TEST(CheckOptions, RefusesAWeightedCombineByRank) {
  EXPECT_EQ(
      refusal([](BenchOptions& o) { o.is_weighted = true; }),
      "--weighted needs one row per expert, --layout by-rank has one per token and rank; try: "
      "--layout by-expert");
}

TEST(CheckOptions, WantsTheOptionsOfRealHostsTogether) {
  EXPECT_EQ(refusal([](BenchOptions& o) { o.node_rank = 0; }),
            "--node-rank, --num-nodes, --ranks-per-node and --address belong together, some are "
            "missing; try: ferry bench --node-rank 0 --num-nodes 2 --ranks-per-node 8 --address "
            "HOST:PORT");
  const auto two_hosts = [](int node_rank, std::optional<int> ranks) {
    return [=](BenchOptions& o) {
      o.node_rank = node_rank;
      o.num_nodes = 2;
      o.ranks_per_node = 4;
      o.address = "host:1234";
      o.ranks = ranks;
    };
  };
  EXPECT_EQ(refusal(two_hosts(1, std::nullopt)), "accepted");
  EXPECT_EQ(refusal(two_hosts(1, 8)), "accepted");
  EXPECT_EQ(refusal(two_hosts(2, std::nullopt)), "--node-rank is 2, expected 0 to 1");
  EXPECT_EQ(refusal(two_hosts(0, 4)), "--ranks is 4, but 2 nodes of 4 ranks are 8");
}

TEST(ApplyPreset, FillsWhatWasNotGiven) {
  BenchOptions options;
  options.preset = "deepep-intranode";
  options.topk = 6;

  apply_preset(options);

  EXPECT_EQ(options.tokens, 2048);
  EXPECT_EQ(options.hidden, 7168);
  EXPECT_EQ(options.experts, 256);
  EXPECT_EQ(options.topk, 6);
}

TEST(ApplyPreset, RefusesAnUnknownName) {
  BenchOptions options;
  options.preset = "deepep";
  try {
    apply_preset(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--preset 'deepep' is unknown, expected deepep-intranode");
  }
}

}  // namespace
}  // namespace ferry::bench
