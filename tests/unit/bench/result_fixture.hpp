#pragma once

// A rank's result in ordinary memory, as a faultless exchange would leave it, for tests to damage.

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/batch.hpp"
#include "bench/check.hpp"
#include "support/oracle.hpp"
#include "support/oracle_numbers.hpp"

namespace ferry::bench {

// Two ranks, four experts, hidden 256. Rank 0 sends three tokens, rank 1 two.
inline Batch small_batch(Layout layout, Quantize quantize = Quantize::kNone) {
  Batch batch;
  batch.routing.num_experts = 4;
  batch.routing.top_k = 2;
  batch.routing.max_tokens = 3;
  batch.routing.topk = {{0, 1, 2, 0, 3, -1}, {1, 3, 0, 2}};
  batch.routing.expert_owner = {0, 0, 1, 1};
  batch.layout = layout;
  batch.quantize = quantize;
  batch.hidden = 256;
  batch.seed = 7;
  return batch;
}

class Result {
 public:
  Result(const Batch& batch, int rank) : batch_(batch), rank_(rank) {
    const oracle::Received received = oracle::receive(shape(), batch.routing.topk, rank);
    num_rows_ = received.num_rows;
    tokens.resize(size_t(num_rows_ * batch.hidden * row_element_bytes()));
    scales.resize(size_t(num_rows_ * num_scales() * 4));
    row_source.resize(size_t(num_rows_ * 2));
    row_expert.assign(size_t(num_rows_), -1);
    topk_idx.assign(size_t(num_rows_ * top_k()), -1);
    topk_weights.resize(size_t(is_by_rank() ? num_rows_ * top_k() : num_rows_));
    expert_counts = received.counts;
    expert_offsets = received.offsets;
    source_offsets.resize(size_t(batch.num_ranks() + 1));
    for (const oracle::Row& row : received.rows) deliver(row);
    for (size_t i = 1; i < source_offsets.size(); ++i) source_offsets[i] += source_offsets[i - 1];
  }

  [[nodiscard]] DeliverySnapshot view() {
    const bool is_quantized = batch_.quantize != Quantize::kNone;
    DeliverySnapshot seen;
    seen.tokens = TensorView::dense(tokens.data(), is_quantized ? DType::kFp8E4m3 : DType::kBf16,
                                    {num_rows_, batch_.hidden});
    if (is_quantized)
      seen.scales = TensorView::dense(scales.data(), DType::kFp32, {num_rows_, num_scales()});
    seen.row_source = TensorView::dense(row_source.data(), DType::kInt32, {num_rows_, 2});
    if (is_by_rank()) {
      seen.topk_idx = TensorView::dense(topk_idx.data(), DType::kInt64, {num_rows_, top_k()});
      seen.topk_weights =
          TensorView::dense(topk_weights.data(), DType::kFp32, {num_rows_, top_k()});
      seen.source_offsets = list(source_offsets);
    } else {
      seen.row_expert = TensorView::dense(row_expert.data(), DType::kInt32, {num_rows_});
      seen.topk_weights = TensorView::dense(topk_weights.data(), DType::kFp32, {num_rows_});
    }
    seen.num_rows = TensorView::dense(&num_rows_, DType::kInt64, {1});
    seen.expert_counts = list(expert_counts);
    seen.expert_offsets = list(expert_offsets);
    return seen;
  }

  [[nodiscard]] CheckResult check() { return check_delivery(batch_, rank_, view()); }

  [[nodiscard]] size_t row_bytes() const { return size_t(batch_.hidden * row_element_bytes()); }

  std::vector<std::uint8_t> tokens;
  std::vector<std::uint8_t> scales;
  std::vector<std::int32_t> row_source;
  std::vector<std::int32_t> row_expert;
  std::vector<std::int64_t> topk_idx;
  std::vector<float> topk_weights;
  std::vector<std::int64_t> expert_counts;
  std::vector<std::int64_t> expert_offsets;
  std::vector<std::int64_t> source_offsets;

 private:
  [[nodiscard]] bool is_by_rank() const { return batch_.layout == Layout::kByRank; }
  [[nodiscard]] std::int64_t top_k() const { return batch_.routing.top_k; }
  [[nodiscard]] std::int64_t row_element_bytes() const {
    return batch_.quantize == Quantize::kNone ? 2 : 1;
  }
  // Scale elements of four bytes: a float for each group of 128, or one word for four groups.
  [[nodiscard]] std::int64_t num_scales() const {
    switch (batch_.quantize) {
      case Quantize::kNone: return 0;
      case Quantize::kFp8: return batch_.hidden / 128;
      case Quantize::kFp8Ue8m0: return (batch_.hidden + 511) / 512;
    }
    return 0;
  }

  [[nodiscard]] oracle::Shape shape() const {
    oracle::Shape shape;
    shape.form = is_by_rank() ? oracle::Form::kByRank : oracle::Form::kByExpert;
    if (batch_.layout == Layout::kPadded) shape.form = oracle::Form::kPadded;
    shape.num_ranks = batch_.num_ranks();
    shape.top_k = batch_.routing.top_k;
    shape.max_tokens = batch_.routing.max_tokens;
    shape.owner = batch_.routing.expert_owner;
    return shape;
  }

  static TensorView list(const std::vector<std::int64_t>& values) {
    return TensorView::dense(values.data(), DType::kInt64,
                             {static_cast<std::int64_t>(values.size())});
  }

  void deliver(const oracle::Row& row) {
    const auto index = size_t(row.index);
    std::vector<std::uint16_t> x(size_t(batch_.hidden));
    fill_row(batch_, row.source, row.token, x);
    if (batch_.quantize == Quantize::kNone)
      std::memcpy(&tokens[index * row_bytes()], x.data(), row_bytes());
    else
      quantize(x, index);
    row_source[2 * index] = static_cast<std::int32_t>(row.token);
    row_source[2 * index + 1] = row.slot;
    ++source_offsets[size_t(row.source) + 1];
    if (!is_by_rank()) {
      row_expert[index] = row.expert % 2;
      topk_weights[index] = weight_at(batch_, row.source, row.token, row.slot);
      return;
    }
    for (int k = 0; k < top_k(); ++k) {
      const int id = batch_.routing.topk[size_t(row.source)][size_t(row.token * top_k() + k)];
      if (id < 0 || id / 2 != rank_) continue;
      topk_idx[index * size_t(top_k()) + size_t(k)] = id % 2;
      topk_weights[index * size_t(top_k()) + size_t(k)] =
          weight_at(batch_, row.source, row.token, k);
    }
  }

  void quantize(const std::vector<std::uint16_t>& x, size_t index) {
    for (size_t group = 0; group < x.size() / 128; ++group) {
      std::vector<float> values;
      for (size_t c = group * 128; c < (group + 1) * 128; ++c)
        values.push_back(oracle::from_bf16(x[c]));
      const float amax = oracle::finite_amax(values);
      const bool is_fp32 = batch_.quantize == Quantize::kFp8;
      const oracle::GroupScale scale =
          is_fp32 ? oracle::scale_fp32(amax) : oracle::scale_ue8m0(amax);
      for (size_t c = 0; c < 128; ++c)
        tokens[index * row_bytes() + group * 128 + c] =
            oracle::to_e4m3(values[c] * scale.multiplier);
      std::uint8_t* own_scales = &scales[index * size_t(num_scales()) * 4];
      if (is_fp32)
        std::memcpy(own_scales + group * 4, &scale.inverse, 4);
      else
        own_scales[group] = scale.exponent;
    }
  }

  const Batch& batch_;
  int rank_;
  std::int64_t num_rows_ = 0;

 public:
  // A delivery that ends earlier than it should.
  void drop_last_row() {
    --num_rows_;
    tokens.resize(tokens.size() - row_bytes());
  }
};

}  // namespace ferry::bench
