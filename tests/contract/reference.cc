#include "contract/reference.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

#include "contract/reference_numbers.hpp"

namespace ferry::contract {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

oracle::Shape shape_of(const Scenario& scenario) {
  oracle::Shape shape;
  switch (scenario.layout) {
    case Layout::kByRank: shape.form = oracle::Form::kByRank; break;
    case Layout::kByExpert: shape.form = oracle::Form::kByExpert; break;
    case Layout::kPadded: shape.form = oracle::Form::kPadded; break;
  }
  shape.num_ranks = scenario.routing.num_ranks();
  shape.top_k = scenario.routing.top_k;
  shape.max_tokens = scenario.token_limit();
  shape.alignment = scenario.alignment;
  shape.owner = scenario.routing.expert_owner;
  return shape;
}

// The local id of a global expert on its rank.
int local_id(const Routing& routing, int expert) {
  const int owner = routing.expert_owner[at(expert)];
  return static_cast<int>(
      std::count(routing.expert_owner.begin(), routing.expert_owner.begin() + expert, owner));
}

// Collects the first problem; later ones are consequences more often than not.
class Problem {
 public:
  template <typename... Values>
  bool unless(bool is_right, fmt::format_string<Values...> format, Values&&... values) {
    if (!is_right && text_.empty()) text_ = fmt::format(format, std::forward<Values>(values)...);
    return is_right;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Tokens and scales as rank `source` sends them, after quantisation.
struct Sent {
  HostTensor tokens, scales, weights;
};
Sent sent_by(const Scenario& scenario, int source) {
  Sent sent;
  sent.tokens = tokens_of(scenario, source);
  if (scenario.has_weights) sent.weights = weights_of(scenario, source);
  if (scenario.num_scales > 0) sent.scales = scales_of(scenario, source);
  if (scenario.quantize != Quantize::kNone) {
    auto [values, scales] = reference_quantize(scenario.quantize, sent.tokens);
    sent.tokens = std::move(values);
    sent.scales = std::move(scales);
  }
  return sent;
}

class DeliveryCheck {
 public:
  DeliveryCheck(const Scenario& scenario, int rank, const Received& received)
      : scenario_(scenario),
        routing_(scenario.routing),
        rank_(rank),
        got_(received),
        expected_(expected_rows(scenario, rank)) {
    for (int source = 0; source < routing_.num_ranks(); ++source)
      sent_.push_back(sent_by(scenario, source));
  }

  std::string first_problem() {
    check_counts();
    if (!problem_.text().empty() || !check_shapes()) return problem_.text();
    std::size_t next = 0;
    for (std::int64_t row = 0; row < got_.tokens.num_rows(); ++row) {
      if (next < expected_.rows.size() && expected_.rows[next].index == row)
        check_row(expected_.rows[next++]);
      else
        check_unused(row);
      if (!problem_.text().empty()) break;
    }
    problem_.unless(!problem_.text().empty() || next == expected_.rows.size(),
                    "{} rows are missing from row {} on", expected_.rows.size() - next, next);
    return problem_.text();
  }

 private:
  void check_list(const char* name, const HostTensor& got, const std::vector<std::int64_t>& want) {
    if (!problem_.unless(got.is_given(), "{} is not given", name)) return;
    if (!problem_.unless(got.dtype() == DType::kInt64 &&
                             got.num_elements() == static_cast<std::int64_t>(want.size()),
                         "{} has {} elements of {}, expected {} of int64", name, got.num_elements(),
                         dtype_name(got.dtype()), want.size()))
      return;
    for (std::size_t i = 0; i < want.size(); ++i)
      problem_.unless(got.int_at(static_cast<std::int64_t>(i)) == want[i],
                      "{}[{}] is {}, expected {}", name, i,
                      got.int_at(static_cast<std::int64_t>(i)), want[i]);
  }

  void check_counts() {
    check_list("num_rows", got_.num_rows, {expected_.num_rows});
    check_list("expert_counts", got_.expert_counts, expected_.counts);
    check_list("expert_offsets", got_.expert_offsets, expected_.offsets);
    if (scenario_.layout == Layout::kByExpert) {
      std::vector<std::int64_t> aligned;
      for (const std::int64_t count : expected_.counts)
        aligned.push_back((count + scenario_.alignment - 1) / scenario_.alignment *
                          scenario_.alignment);
      check_list("aligned_expert_counts", got_.aligned_expert_counts, aligned);
    }
    if (!is_by_rank()) return;
    std::vector<std::int64_t> sources(at(routing_.num_ranks() + 1));
    for (const oracle::Row& row : expected_.rows) ++sources[at(row.source + 1)];
    std::partial_sum(sources.begin(), sources.end(), sources.begin());
    check_list("source_offsets", got_.source_offsets, sources);
  }

  bool check_shapes() {
    const std::int64_t rows = got_.tokens.is_given() ? got_.tokens.num_rows() : -1;
    const HostTensor& sent = sent_[0].tokens;
    problem_.unless(rows >= expected_.num_rows, "{} rows of tokens, expected {}", rows,
                    expected_.num_rows);
    problem_.unless(got_.tokens.is_given() && got_.tokens.dtype() == sent.dtype() &&
                        got_.tokens.row_elements() == scenario_.hidden,
                    "tokens are not [n, {}] of {}", scenario_.hidden, dtype_name(sent.dtype()));
    const auto needs = [&](const char* name, const HostTensor& got, DType dtype,
                           std::int64_t elements) {
      problem_.unless(got.is_given() && got.dtype() == dtype && got.num_elements() == elements,
                      "{} has {} elements of {}, expected {} of {}", name,
                      got.is_given() ? got.num_elements() : -1, dtype_name(got.dtype()), elements,
                      dtype_name(dtype));
    };
    if (scenario_.layout == Layout::kPadded)
      problem_.unless(got_.tokens.shape().size() == 3, "padded tokens have {} dimensions",
                      got_.tokens.shape().size());
    if (sent_[0].scales.is_given())
      needs("scales", got_.scales, sent_[0].scales.dtype(), rows * sent_[0].scales.row_elements());
    if (is_by_rank()) needs("topk_idx", got_.topk_idx, scenario_.topk_dtype, rows * top_k());
    if (scenario_.has_weights)
      needs("topk_weights", got_.topk_weights, DType::kFp32, is_by_rank() ? rows * top_k() : rows);
    needs("row_source", got_.row_source, DType::kInt32, rows * 2);
    if (!is_by_rank()) needs("row_expert", got_.row_expert, DType::kInt32, rows);
    return problem_.text().empty();
  }

  void check_row(const oracle::Row& row) {
    const Sent& sent = sent_[at(row.source)];
    const auto where = [&] {
      return fmt::format("row {} (from rank {} token {} slot {})", row.index, row.source, row.token,
                         row.slot);
    };
    HostTensor expected(sent.tokens.dtype(), {scenario_.hidden});
    std::memcpy(expected.bytes().data(), sent.tokens.row(row.token), expected.bytes().size());
    if (scenario_.scale_by_weights)
      expected = reference_scale(
          expected, static_cast<float>(sent.weights.at(row.token * top_k() + row.slot)));
    HostTensor got(got_.tokens.dtype(), {scenario_.hidden});
    std::memcpy(got.bytes().data(), got_.tokens.row(row.index), got.bytes().size());
    const std::string difference = support::first_difference(got, expected);
    problem_.unless(difference.empty(), "{}: {}", where(), difference);

    if (sent.scales.is_given())
      problem_.unless(std::memcmp(got_.scales.row(row.index), sent.scales.row(row.token),
                                  sent.scales.row_bytes()) == 0,
                      "{}: scales differ", where());
    problem_.unless(got_.row_source.int_at(row.index * 2) == row.token &&
                        got_.row_source.int_at(row.index * 2 + 1) == row.slot,
                    "{}: row_source is ({}, {})", where(), got_.row_source.int_at(row.index * 2),
                    got_.row_source.int_at(row.index * 2 + 1));
    if (is_by_rank()) return check_ids(row, sent, where());
    problem_.unless(got_.row_expert.int_at(row.index) == local_id(routing_, row.expert),
                    "{}: row_expert is {}, expected {}", where(), got_.row_expert.int_at(row.index),
                    local_id(routing_, row.expert));
    if (scenario_.has_weights)
      problem_.unless(
          got_.topk_weights.bits(row.index) == sent.weights.bits(row.token * top_k() + row.slot),
          "{}: weight is {}, expected {}", where(), got_.topk_weights.at(row.index),
          sent.weights.at(row.token * top_k() + row.slot));
  }

  void check_ids(const oracle::Row& row, const Sent& sent, const std::string& where) {
    for (int k = 0; k < top_k(); ++k) {
      const int expert = routing_.topk[at(row.source)][at(row.token * top_k() + k)];
      const bool is_here = expert >= 0 && routing_.expert_owner[at(expert)] == rank_;
      const std::int64_t id = is_here ? local_id(routing_, expert) : -1;
      problem_.unless(got_.topk_idx.int_at(row.index * top_k() + k) == id,
                      "{}: topk_idx[{}] is {}, expected {}", where, k,
                      got_.topk_idx.int_at(row.index * top_k() + k), id);
      if (!scenario_.has_weights) continue;
      const std::uint32_t weight = is_here ? sent.weights.bits(row.token * top_k() + k) : 0;
      problem_.unless(got_.topk_weights.bits(row.index * top_k() + k) == weight,
                      "{}: weight {} is {}, expected {}", where, k,
                      got_.topk_weights.at(row.index * top_k() + k),
                      support::decode(DType::kFp32, weight));
    }
  }

  // Gaps and the tail of worst-case outputs.
  void check_unused(std::int64_t row) {
    if (is_by_rank()) {
      for (int k = 0; k < top_k(); ++k)
        problem_.unless(got_.topk_idx.int_at(row * top_k() + k) == -1,
                        "unused row {}: topk_idx[{}] is {}, expected -1", row, k,
                        got_.topk_idx.int_at(row * top_k() + k));
    } else {
      problem_.unless(got_.row_expert.int_at(row) == -1,
                      "gap row {}: row_expert is {}, expected -1", row,
                      got_.row_expert.int_at(row));
    }
    if (scenario_.gaps != Gaps::kZeroed) return;
    const std::byte* begin = got_.tokens.row(row);
    problem_.unless(std::all_of(begin, begin + got_.tokens.row_bytes(),
                                [](std::byte b) { return b == std::byte{0}; }),
                    "gap row {} is not zero", row);
  }

  [[nodiscard]] bool is_by_rank() const { return scenario_.layout == Layout::kByRank; }
  [[nodiscard]] int top_k() const { return routing_.top_k; }

  const Scenario& scenario_;
  const Routing& routing_;
  int rank_;
  const Received& got_;
  oracle::Received expected_;
  std::vector<Sent> sent_;
  Problem problem_;
};

std::map<std::tuple<int, std::int64_t, int>, std::int64_t> index_rows(
    const Scenario& scenario, const oracle::Received& received) {
  std::map<std::tuple<int, std::int64_t, int>, std::int64_t> index;
  for (const oracle::Row& row : received.rows)
    index[{row.source, row.token, scenario.layout == Layout::kByRank ? -1 : row.slot}] = row.index;
  return index;
}

}  // namespace

oracle::Received expected_rows(const Scenario& scenario, int rank) {
  std::vector<oracle::Topk> topk;
  for (const auto& ids : scenario.routing.topk) topk.emplace_back(ids.begin(), ids.end());
  return oracle::receive(shape_of(scenario), topk, rank);
}

std::string delivery_problem(const Scenario& scenario, int rank, const Received& received) {
  return DeliveryCheck(scenario, rank, received).first_problem();
}

CombineReference::CombineReference(const Scenario& scenario) : scenario_(scenario) {
  for (int holder = 0; holder < scenario.routing.num_ranks(); ++holder) {
    const oracle::Received received = expected_rows(scenario, holder);
    index_.push_back(index_rows(scenario, received));
    rows_.push_back(rows_of(scenario, holder, {received.num_rows, scenario.hidden}));
  }
}

HostTensor CombineReference::sum(int rank) const {
  const Routing& routing = scenario_.routing;
  const oracle::Shape shape = shape_of(scenario_);
  std::vector<HostTensor> biases;
  for (int i = 0; i < scenario_.num_biases; ++i) biases.push_back(bias_of(scenario_, rank, i));
  const bool is_by_k = scenario_.is_weighted || scenario_.row_order == RowOrder::kHighestKAscending;
  const auto order = is_by_k ? oracle::Order::kHighestKAscending : oracle::Order::kRankAscending;

  HostTensor out(scenario_.sum_dtype, {routing.num_tokens(rank), scenario_.hidden});
  for (std::int64_t t = 0; t < routing.num_tokens(rank); ++t) {
    const int* ids = &routing.topk[at(rank)][at(t * routing.top_k)];
    ReferenceSum sum(scenario_.sum_dtype, scenario_.hidden);
    if (scenario_.num_biases > 0) sum.start_from(biases[0].row(t));
    if (scenario_.num_biases > 1) sum.add(biases[1].row(t));
    for (const oracle::Term& term : oracle::combine_order(shape, ids, order)) {
      const int k = scenario_.layout == Layout::kByRank ? -1 : term.k;
      const std::byte* row = rows_[at(term.rank)].row(index_[at(term.rank)].at({rank, t, k}));
      if (scenario_.is_weighted)
        sum.add_weighted(row, routing.weights[at(rank)][at(t * routing.top_k + term.k)]);
      else
        sum.add(row);
    }
    sum.round_to(out.row(t));
  }
  return out;
}

HostTensor expected_sum(const Scenario& scenario, int rank) {
  return CombineReference(scenario).sum(rank);
}

HostTensor expected_combined_weights(const Scenario& scenario, int rank) {
  const Routing& routing = scenario.routing;
  HostTensor out(DType::kFp32, {routing.num_tokens(rank), routing.top_k});
  const bool is_by_rank = scenario.layout == Layout::kByRank;
  for (int holder = 0; holder < routing.num_ranks(); ++holder) {
    const oracle::Received received = expected_rows(scenario, holder);
    const auto index = index_rows(scenario, received);
    std::vector<std::int64_t> shape = {received.num_rows};
    if (is_by_rank) shape.push_back(routing.top_k);
    const HostTensor weights = row_weights_of(scenario, holder, shape);
    for (std::int64_t i = 0; i < out.num_elements(); ++i) {
      const int expert = routing.topk[at(rank)][at(i)];
      if (expert < 0 || routing.expert_owner[at(expert)] != holder) continue;
      const std::int64_t t = i / routing.top_k;
      const int k = static_cast<int>(i % routing.top_k);
      const std::int64_t row = index.at({rank, t, is_by_rank ? -1 : k});
      out.set_bits(i, weights.bits(is_by_rank ? row * routing.top_k + k : row));
    }
  }
  return out;
}

std::string combine_problem(const Scenario& scenario,
                            int rank,
                            const RankUnderTest::Combined& combined) {
  return combine_problem(scenario, CombineReference(scenario), rank, combined);
}

std::string combine_problem(const Scenario& scenario,
                            const CombineReference& reference,
                            int rank,
                            const RankUnderTest::Combined& combined) {
  const std::string sum = support::first_difference(combined.out, reference.sum(rank));
  if (!sum.empty()) return "out: " + sum;
  if (!scenario.returns_weights) return "";
  const std::string weights =
      support::first_difference(combined.weights, expected_combined_weights(scenario, rank));
  return weights.empty() ? "" : "combined_weights: " + weights;
}

void expect_right(const Scenario& scenario,
                  const std::vector<RankResult>& results,
                  const RunOptions& options) {
  for (int rank = 0; rank < scenario.routing.num_ranks(); ++rank)
    EXPECT_EQ(delivery_problem(scenario, rank, results[at(rank)].received), "")
        << "rank " << rank << ", " << describe(scenario);
  if (!options.combines) return;
  const CombineReference reference(scenario);
  for (int rank = 0; rank < scenario.routing.num_ranks(); ++rank)
    EXPECT_EQ(combine_problem(scenario, reference, rank, results[at(rank)].combined), "")
        << "rank " << rank << ", " << describe(scenario);
}

}  // namespace ferry::contract
