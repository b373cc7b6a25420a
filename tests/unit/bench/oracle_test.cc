#include "support/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/oracle_numbers.hpp"

// The oracle against answers worked out by hand.

namespace ferry::oracle {
namespace {

Shape two_ranks(Form form) {
  Shape shape;
  shape.form = form;
  shape.num_ranks = 2;
  shape.top_k = 2;
  shape.max_tokens = 3;
  shape.alignment = 4;
  shape.owner = {0, 0, 1, 1};
  return shape;
}

const std::vector<Topk> kTopk = {{0, 1, 2, 0, 3, -1}, {1, 3, 0, 2}};

// "index:source.token/slot@expert"
std::string text(const Received& in) {
  std::string all;
  for (const Row& row : in.rows)
    all += std::to_string(row.index) + ":" + std::to_string(row.source) + "." +
           std::to_string(row.token) + "/" + std::to_string(row.slot) + "@" +
           std::to_string(row.expert) + " ";
  return all;
}

TEST(Oracle, DeliversATokenOnceToARankInByRank) {
  const Received in = receive(two_ranks(Form::kByRank), kTopk, 0);

  EXPECT_EQ(text(in), "0:0.0/0@-1 1:0.1/0@-1 2:1.0/0@-1 3:1.1/0@-1 ");
  EXPECT_EQ(in.num_rows, 4);
  EXPECT_EQ(in.counts, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(in.offsets, (std::vector<std::int64_t>{0, 3, 5}));
}

TEST(Oracle, NumbersTheDestinationsOfATokenInByRank) {
  const Received in = receive(two_ranks(Form::kByRank), kTopk, 1);

  EXPECT_EQ(text(in), "0:0.1/1@-1 1:0.2/0@-1 2:1.0/1@-1 3:1.1/1@-1 ");
}

TEST(Oracle, AlignsTheStartsOfExpertsInByExpert) {
  const Received in = receive(two_ranks(Form::kByExpert), kTopk, 0);

  EXPECT_EQ(text(in), "0:0.0/0@0 1:0.1/1@0 2:1.1/0@0 4:0.0/1@1 5:1.0/0@1 ");
  EXPECT_EQ(in.num_rows, 8);
  EXPECT_EQ(in.offsets, (std::vector<std::int64_t>{0, 4, 8}));
}

TEST(Oracle, GivesEveryExpertTheSameRoomInPadded) {
  const Received in = receive(two_ranks(Form::kPadded), kTopk, 1);

  EXPECT_EQ(text(in), "0:0.1/0@2 1:1.1/1@2 6:0.2/0@3 7:1.0/1@3 ");
  EXPECT_EQ(in.num_rows, 12);
}

TEST(Oracle, SumsByRankOrByHighestK) {
  Shape shape = two_ranks(Form::kByRank);
  shape.top_k = 4;
  const int ids[] = {3, 0, -1, 2};
  const auto order = [&](Form form, Order by) {
    shape.form = form;
    std::string all;
    for (const Term& term : combine_order(shape, ids, by))
      all += std::to_string(term.rank) + "." + std::to_string(term.k) + " ";
    return all;
  };

  EXPECT_EQ(order(Form::kByRank, Order::kRankAscending), "0.1 1.3 ");
  EXPECT_EQ(order(Form::kByRank, Order::kHighestKAscending), "0.1 1.3 ");
  EXPECT_EQ(order(Form::kByExpert, Order::kRankAscending), "0.1 1.0 1.3 ");
  EXPECT_EQ(order(Form::kByExpert, Order::kHighestKAscending), "1.0 0.1 1.3 ");
}

TEST(OracleNumbers, RoundsToBf16AtTheNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(to_bf16(257.0F), 0x4380);  // half way between 256 and 258
  EXPECT_EQ(to_bf16(259.0F), 0x4382);  // half way between 258 and 260
  EXPECT_EQ(to_bf16(-0.0F), 0x8000);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(to_bf16(-std::numeric_limits<float>::quiet_NaN()), 0x7FFF);
}

TEST(OracleNumbers, EncodesE4m3) {
  EXPECT_EQ(to_e4m3(1.0F), 0x38);
  EXPECT_EQ(to_e4m3(-1.0F), 0xB8);
  EXPECT_EQ(to_e4m3(448.0F), 0x7E);
  EXPECT_EQ(to_e4m3(1e9F), 0x7E);
  EXPECT_EQ(to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_EQ(to_e4m3(std::nanf("")), 0x7F);
  EXPECT_EQ(to_e4m3(0x1p-9F), 0x01);   // the smallest
  EXPECT_EQ(to_e4m3(0x1p-10F), 0x00);  // half of it: to even
  EXPECT_EQ(to_e4m3(0x3p-10F), 0x02);  // one and a half of it: to even
  EXPECT_EQ(to_e4m3(17.0F), 0x58);     // between 16 and 18: to even
  EXPECT_EQ(to_e4m3(19.0F), 0x5A);     // between 18 and 20: to even
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    EXPECT_EQ(to_e4m3(from_e4m3(static_cast<std::uint8_t>(code))), code);
  }
}

TEST(OracleNumbers, TakesTheNextPowerOfTwoAsAnUe8m0Scale) {
  EXPECT_EQ(scale_ue8m0(448.0F).exponent, 127);
  EXPECT_EQ(scale_ue8m0(449.0F).exponent, 128);
  EXPECT_EQ(scale_ue8m0(8.0F).exponent, 122);  // 8/448 is above 2^-6
  EXPECT_EQ(scale_ue8m0(8.0F).inverse, 0x1p-5F);
  EXPECT_EQ(scale_ue8m0(8.0F).multiplier, 32.0F);
}

TEST(OracleNumbers, AddsInTheOrderGiven) {
  const std::vector<std::vector<float>> rows = {{1e8F}, {1.0F}, {-1e8F}};

  EXPECT_EQ(sum(rows, {}, {0.0F}), std::vector<float>{0.0F});
  EXPECT_EQ(sum({rows[0], rows[2], rows[1]}, {}, {0.0F}), std::vector<float>{1.0F});
  EXPECT_EQ(sum({{2.0F}, {3.0F}}, {0.5F, 2.0F}, {1.0F}), std::vector<float>{8.0F});
}

}  // namespace
}  // namespace ferry::oracle
