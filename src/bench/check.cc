#include "bench/check.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "bench/expected_row.hpp"
#include "support/oracle.hpp"
#include "support/oracle_numbers.hpp"

namespace ferry::bench {

namespace {

oracle::Shape oracle_shape(const Batch& batch) {
  oracle::Shape shape;
  switch (batch.layout) {
    case Layout::kByRank: shape.form = oracle::Form::kByRank; break;
    case Layout::kByExpert: shape.form = oracle::Form::kByExpert; break;
    case Layout::kPadded: shape.form = oracle::Form::kPadded; break;
  }
  shape.num_ranks = batch.num_ranks();
  shape.top_k = batch.routing.top_k;
  shape.max_tokens = std::max<std::int64_t>(batch.routing.max_tokens, 1);
  shape.owner = batch.routing.expert_owner;
  return shape;
}

// Element `index` of a tensor whose dimensions but the last are dense.
template <typename Element>
Element element(const TensorView& view, std::int64_t index) {
  Element value{};
  std::memcpy(&value, static_cast<const Element*>(view.data) + index, sizeof(value));
  return value;
}

std::int64_t integer(const TensorView& view, std::int64_t index) {
  return view.dtype == DType::kInt64 ? element<std::int64_t>(view, index)
                                     : std::int64_t{element<std::int32_t>(view, index)};
}

// Rows of a tensor whose last `inner_dims` dimensions are one row.
std::int64_t num_rows_of(const TensorView& view, int inner_dims) {
  std::int64_t rows = view.is_given() ? 1 : 0;
  for (int dim = 0; dim < view.num_dims - inner_dims; ++dim) rows *= view.shape[dim];
  return rows;
}

const std::byte* row_bytes(const TensorView& view, std::int64_t row) {
  return static_cast<const std::byte*>(view.data) +
         row * view.strides[view.num_dims - 2] * static_cast<std::int64_t>(dtype_bytes(view.dtype));
}

// NaNs compare by their bits, like everything else here.
bool is_same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

class DeliveryCheck {
 public:
  DeliveryCheck(const Batch& batch, int rank, const DeliverySnapshot& seen)
      : batch_(batch),
        rank_(rank),
        seen_(seen),
        expected_(oracle::receive(oracle_shape(batch), batch.routing.topk, rank)),
        expected_rows_(batch) {
    const std::vector<int>& owner = batch.routing.expert_owner;
    for (std::size_t expert = 0, local = 0; expert < owner.size(); ++expert)
      local_id_.push_back(owner[expert] == rank ? static_cast<int>(local++) : -1);
  }

  CheckResult run() {
    result_.rows_planned = static_cast<std::int64_t>(expected_.rows.size());
    check_counts();
    if (!check_forms()) return std::move(result_);
    const std::int64_t present = num_present_rows();
    for (const oracle::Row& row : expected_.rows) {
      if (row.index >= present) {
        differs("rank {} row {} (token {} of rank {}) is missing: the delivery has {} rows", rank_,
                row.index, row.token, row.source, present);
        continue;
      }
      ++result_.rows_compared;
      check_row(row);
    }
    check_unused(present);
    return std::move(result_);
  }

 private:
  template <typename... Values>
  void differs(fmt::format_string<Values...> format, Values&&... values) {
    if (result_.mismatches++ == 0)
      result_.first_difference = fmt::format(format, std::forward<Values>(values)...);
  }

  void check_list(const char* name, const TensorView& view, const std::vector<std::int64_t>& want) {
    const std::int64_t length = num_rows_of(view, 0);
    if (length != static_cast<std::int64_t>(want.size()))
      return differs("rank {}: {} has {} entries, expected {}", rank_, name, length, want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      const std::int64_t got = integer(view, static_cast<std::int64_t>(i));
      if (got != want[i])
        differs("rank {}: {}[{}] is {}, expected {}", rank_, name, i, got, want[i]);
    }
  }

  // True when every tensor is there and its rows have the right width.
  bool check_forms() {
    const bool is_by_rank = batch_.layout == Layout::kByRank;
    const std::int64_t before = result_.mismatches;
    const auto check_given = [&](const char* name, const TensorView& view) {
      if (!view.is_given()) differs("rank {}: {} was not delivered", rank_, name);
    };
    check_given("tokens", seen_.tokens);
    check_given("topk_weights", seen_.topk_weights);
    check_given("row_source", seen_.row_source);
    if (batch_.quantize != Quantize::kNone) check_given("scales", seen_.scales);
    if (is_by_rank) check_given("topk_idx", seen_.topk_idx);
    if (!is_by_rank) check_given("row_expert", seen_.row_expert);
    if (result_.mismatches != before) return false;
    const DType dtype = batch_.quantize == Quantize::kNone ? DType::kBf16 : DType::kFp8E4m3;
    const std::int64_t hidden = seen_.tokens.shape[seen_.tokens.num_dims - 1];
    if (hidden != batch_.hidden || seen_.tokens.dtype != dtype)
      differs("rank {}: tokens has rows of {} {}, expected {} {}", rank_, hidden,
              dtype_name(seen_.tokens.dtype), batch_.hidden, dtype_name(dtype));
    return result_.mismatches == before;
  }

  // Rows that every tensor has.
  [[nodiscard]] std::int64_t num_present_rows() const {
    const bool is_by_rank = batch_.layout == Layout::kByRank;
    std::int64_t rows = std::min(num_rows_of(seen_.tokens, 1), num_rows_of(seen_.row_source, 1));
    rows = std::min(rows, num_rows_of(seen_.topk_weights, is_by_rank ? 1 : 0));
    if (seen_.scales.is_given()) rows = std::min(rows, num_rows_of(seen_.scales, 1));
    return std::min(rows,
                    is_by_rank ? num_rows_of(seen_.topk_idx, 1) : num_rows_of(seen_.row_expert, 0));
  }

  void check_counts() {
    check_list("num_rows", seen_.num_rows, {expected_.num_rows});
    check_list("expert_counts", seen_.expert_counts, expected_.counts);
    check_list("expert_offsets", seen_.expert_offsets, expected_.offsets);
    if (batch_.layout != Layout::kByRank) return;
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(batch_.num_ranks()) + 1);
    for (const oracle::Row& row : expected_.rows)
      ++offsets[static_cast<std::size_t>(row.source) + 1];
    for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    check_list("source_offsets", seen_.source_offsets, offsets);
  }

  void check_row(const oracle::Row& row) {
    const ExpectedRow& want = expected_rows_.of(row.source, row.token);
    if (batch_.quantize == Quantize::kNone)
      check_elements(row, want.bf16);
    else
      check_elements(row, want.fp8);
    if (batch_.quantize != Quantize::kNone) check_scales(row, want);
    check_source(row);
    if (batch_.layout == Layout::kByRank)
      check_selections(row);
    else
      check_expert(row);
  }

  template <typename Element>
  void check_elements(const oracle::Row& row, const std::vector<Element>& want) {
    const std::byte* got = row_bytes(seen_.tokens, row.index);
    if (std::memcmp(got, want.data(), want.size() * sizeof(Element)) == 0) return;
    std::vector<Element> values(want.size());
    std::memcpy(values.data(), got, values.size() * sizeof(Element));
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(values, want).in1 - values.begin());
    differs("rank {} row {} (token {} of rank {}): tokens[{}, {}] is 0x{:0{}x}, expected 0x{:0{}x}",
            rank_, row.index, row.token, row.source, row.index, at, values[at], 2 * sizeof(Element),
            want[at], 2 * sizeof(Element));
  }

  void check_scales(const oracle::Row& row, const ExpectedRow& want) {
    const std::int64_t stride = seen_.scales.strides[seen_.scales.num_dims - 1];
    const std::byte* got = row_bytes(seen_.scales, row.index);
    for (std::size_t group = 0; group < want.scales.size(); ++group) {
      const auto place = static_cast<std::int64_t>(group);
      if (batch_.quantize == Quantize::kFp8) {
        float value = 0;
        std::memcpy(&value, got + place * stride * 4, sizeof(value));
        if (is_same(value, want.scales[group])) continue;
        return differs("rank {} row {} (token {} of rank {}): scale {} is {}, expected {}", rank_,
                       row.index, row.token, row.source, group, value, want.scales[group]);
      }
      const auto value = std::to_integer<int>(got[place / 4 * stride * 4 + place % 4]);
      if (value == want.exponents[group]) continue;
      return differs("rank {} row {} (token {} of rank {}): scale exponent {} is {}, expected {}",
                     rank_, row.index, row.token, row.source, group, value, want.exponents[group]);
    }
  }

  void check_source(const oracle::Row& row) {
    const auto token = element<std::int32_t>(seen_.row_source, 2 * row.index);
    const auto slot = element<std::int32_t>(seen_.row_source, 2 * row.index + 1);
    if (token == row.token && slot == row.slot) return;
    differs(
        "rank {} row {} (token {} of rank {}): row_source is token {} slot {}, expected token {} "
        "slot {}",
        rank_, row.index, row.token, row.source, token, slot, row.token, row.slot);
  }

  // kByRank: ids translated to local ones, and their weights.
  void check_selections(const oracle::Row& row) {
    const int top_k = batch_.routing.top_k;
    const auto& ids = batch_.routing.topk[static_cast<std::size_t>(row.source)];
    for (int k = 0; k < top_k; ++k) {
      const int id = ids[static_cast<std::size_t>(row.token * top_k + k)];
      const int want = id < 0 ? -1 : local_id_[static_cast<std::size_t>(id)];
      const std::int64_t got = integer(seen_.topk_idx, row.index * top_k + k);
      if (got != want)
        return differs("rank {} row {} (token {} of rank {}): topk_idx[{}, {}] is {}, expected {}",
                       rank_, row.index, row.token, row.source, row.index, k, got, want);
      const float weight = want < 0 ? 0.0F : weight_at(batch_, row.source, row.token, k);
      if (!check_weight(row, row.index * top_k + k, weight)) return;
    }
  }

  void check_expert(const oracle::Row& row) {
    const auto got = element<std::int32_t>(seen_.row_expert, row.index);
    const int want = local_id_[static_cast<std::size_t>(row.expert)];
    if (got != want)
      return differs("rank {} row {} (token {} of rank {}): row_expert is {}, expected {}", rank_,
                     row.index, row.token, row.source, got, want);
    check_weight(row, row.index, weight_at(batch_, row.source, row.token, row.slot));
  }

  bool check_weight(const oracle::Row& row, std::int64_t index, float want) {
    const auto got = element<float>(seen_.topk_weights, index);
    if (is_same(got, want)) return true;
    differs("rank {} row {} (token {} of rank {}): topk_weights is {}, expected {}", rank_,
            row.index, row.token, row.source, got, want);
    return false;
  }

  // Rows that hold no token name no expert.
  void check_unused(std::int64_t present) {
    const bool is_by_rank = batch_.layout == Layout::kByRank;
    const TensorView& names = is_by_rank ? seen_.topk_idx : seen_.row_expert;
    const std::int64_t per_row = is_by_rank ? batch_.routing.top_k : 1;
    auto used = expected_.rows.begin();
    for (std::int64_t row = 0; row < present; ++row) {
      if (used != expected_.rows.end() && used->index == row) {
        ++used;
        continue;
      }
      for (std::int64_t k = 0; k < per_row; ++k) {
        const std::int64_t got = integer(names, row * per_row + k);
        if (got == -1) continue;
        differs("rank {} row {} holds no token, but its expert is {}, expected -1", rank_, row,
                got);
        break;
      }
    }
  }

  const Batch& batch_;
  int rank_;
  const DeliverySnapshot& seen_;
  oracle::Received expected_;
  ExpectedRows expected_rows_;
  std::vector<int> local_id_;  // [E], -1 elsewhere
  CheckResult result_;
};

// One token's combined row as the oracle has it.
std::vector<std::uint16_t> expected_result(const Batch& batch,
                                           const oracle::Shape& shape,
                                           int rank,
                                           std::int64_t token,
                                           ExpectedRows& rows) {
  const int* ids =
      &batch.routing
           .topk[static_cast<std::size_t>(rank)][static_cast<std::size_t>(token * shape.top_k)];
  // Weighted sums go by ascending k, others by destination rank.
  const auto order = batch.is_weighted && batch.layout != Layout::kByRank
                         ? oracle::Order::kHighestKAscending
                         : oracle::Order::kRankAscending;
  static_cast<void>(rows.of(rank, token));
  const std::vector<float> values = rows.values();
  std::vector<std::vector<float>> terms;
  std::vector<float> weights;
  for (const oracle::Term& term : oracle::combine_order(shape, ids, order)) {
    const float factor = expert_factor(batch, term.rank, ids[term.k]);
    std::vector<float>& y = terms.emplace_back(values);
    for (float& value : y) value = oracle::from_bf16(oracle::to_bf16(value * factor));
    if (order == oracle::Order::kHighestKAscending)
      weights.push_back(weight_at(batch, rank, token, term.k));
  }
  std::vector<std::uint16_t> result;
  result.reserve(values.size());
  for (const float value : oracle::sum(terms, weights, std::vector<float>(values.size())))
    result.push_back(oracle::to_bf16(value));
  return result;
}

}  // namespace

CheckResult check_delivery(const Batch& batch, int rank, const DeliverySnapshot& seen) {
  return DeliveryCheck(batch, rank, seen).run();
}

CheckResult check_combined(const Batch& batch, int rank, const TensorView& out) {
  CheckResult result;
  ExpectedRows rows(batch);
  const oracle::Shape shape = oracle_shape(batch);
  for (std::int64_t token = 0; token < batch.routing.num_tokens(rank); ++token) {
    const std::vector<std::uint16_t> want = expected_result(batch, shape, rank, token, rows);
    ++result.tokens_compared;
    const auto* got = reinterpret_cast<const std::uint16_t*>(row_bytes(out, token));
    if (std::equal(want.begin(), want.end(), got)) continue;
    const auto at =
        static_cast<std::size_t>(std::mismatch(want.begin(), want.end(), got).first - want.begin());
    if (result.mismatches++ == 0)
      result.first_difference = fmt::format(
          "rank {} token {}: out[{}, {}] is {} (0x{:04x}), expected {} (0x{:04x})", rank, token,
          token, at, oracle::from_bf16(got[at]), got[at], oracle::from_bf16(want[at]), want[at]);
  }
  return result;
}

CheckResult merge(std::span<const CheckResult> results) {
  CheckResult total;
  for (const CheckResult& result : results) {
    total.rows_planned += result.rows_planned;
    total.rows_compared += result.rows_compared;
    total.tokens_compared += result.tokens_compared;
    total.mismatches += result.mismatches;
    if (total.first_difference.empty()) total.first_difference = result.first_difference;
  }
  return total;
}

}  // namespace ferry::bench
