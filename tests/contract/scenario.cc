#include "contract/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "contract/reference.hpp"
#include "support/spawn.hpp"

namespace ferry::contract {
namespace {

std::uint64_t seed_of(const Scenario& scenario, int what, int rank) {
  return scenario.seed * 1000003 + static_cast<std::uint64_t>(what) * 1009 +
         static_cast<std::uint64_t>(rank);
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

std::int64_t Scenario::token_limit() const {
  return max_tokens > 0 ? max_tokens : std::max<std::int64_t>(routing.max_num_tokens(), 1);
}

std::string describe(const Scenario& scenario) {
  return fmt::format(
      "layout {} H {} {} -> sum {} alignment {} max_tokens {} quantize {} weighted {} form {}\n{}",
      static_cast<int>(scenario.layout), scenario.hidden, dtype_name(scenario.dtype),
      dtype_name(scenario.sum_dtype), scenario.alignment, scenario.token_limit(),
      static_cast<int>(scenario.quantize), scenario.is_weighted, static_cast<int>(scenario.form),
      support::describe(scenario.routing));
}

ExchangeConfig config_of(const Scenario& scenario, const EngineUnderTest& engine, int rank) {
  ExchangeConfig config;
  config.num_experts = scenario.routing.num_experts;
  config.top_k = scenario.routing.top_k;
  config.hidden = scenario.hidden;
  config.max_tokens = scenario.token_limit();
  config.dtype = dtype_bytes(scenario.sum_dtype) > dtype_bytes(scenario.dtype) ? scenario.sum_dtype
                                                                               : scenario.dtype;
  config.device = engine.device(rank);
  config.mode = engine.mode;
  config.layout = scenario.layout;
  config.expert_alignment = scenario.alignment;
  config.duplicates = scenario.duplicates;
  config.expert_owner = scenario.routing.expert_owner;
  config.scale_bytes_per_row =
      scenario.num_scales * static_cast<std::int64_t>(dtype_bytes(scenario.scale_dtype));
  config.max_recv_rows = scenario.max_recv_rows;
  config.overflow = scenario.overflow;
  config.memory_limit = scenario.memory_limit;
  config.arena_bytes = scenario.arena_bytes;
  config.row_order = scenario.row_order;
  config.num_threads = 1;
  return config;
}

HostTensor topk_of(const Scenario& scenario, int rank) {
  const auto& ids = scenario.routing.topk[at(rank)];
  HostTensor tensor(scenario.topk_dtype,
                    {scenario.routing.num_tokens(rank), scenario.routing.top_k});
  for (std::size_t i = 0; i < ids.size(); ++i) tensor.set(static_cast<std::int64_t>(i), ids[i]);
  return tensor;
}

HostTensor weights_of(const Scenario& scenario, int rank) {
  const auto& weights = scenario.routing.weights[at(rank)];
  HostTensor tensor(DType::kFp32, {scenario.routing.num_tokens(rank), scenario.routing.top_k});
  if (!weights.empty()) std::memcpy(tensor.bytes().data(), weights.data(), tensor.bytes().size());
  return tensor;
}

HostTensor tokens_of(const Scenario& scenario, int rank) {
  HostTensor tokens =
      support::patterned(scenario.dtype, {scenario.routing.num_tokens(rank), scenario.hidden},
                         seed_of(scenario, 1, rank));
  if (scenario.edit_tokens) scenario.edit_tokens(tokens, rank);
  return tokens;
}

HostTensor scales_of(const Scenario& scenario, int rank) {
  return support::patterned(scenario.scale_dtype,
                            {scenario.routing.num_tokens(rank), scenario.num_scales},
                            seed_of(scenario, 2, rank));
}

HostTensor bias_of(const Scenario& scenario, int rank, int which) {
  return support::patterned(scenario.sum_dtype,
                            {scenario.routing.num_tokens(rank), scenario.hidden},
                            seed_of(scenario, 3 + which, rank));
}

HostTensor rows_of(const Scenario& scenario, int rank, const std::vector<std::int64_t>& shape) {
  HostTensor rows(scenario.sum_dtype, shape);
  rows.fill(std::byte{0xFF});
  for (const oracle::Row& row : expected_rows(scenario, rank).rows) {
    if (row.index >= rows.num_rows()) break;  // dropped
    const std::uint64_t seed =
        seed_of(scenario, 5, rank) * 65537 + static_cast<std::uint64_t>(row.index);
    const HostTensor values = scenario.has_rough_values
                                  ? support::rough(scenario.sum_dtype, {scenario.hidden}, seed)
                                  : support::patterned(scenario.sum_dtype, {scenario.hidden}, seed);
    std::memcpy(rows.row(row.index), values.bytes().data(), values.bytes().size());
  }
  if (scenario.edit_rows) scenario.edit_rows(rows, rank);
  return rows;
}

HostTensor row_weights_of(const Scenario& scenario,
                          int rank,
                          const std::vector<std::int64_t>& shape) {
  HostTensor weights(DType::kFp32, shape);
  for (std::int64_t i = 0; i < weights.num_elements(); ++i)
    weights.set(i, support::small_integer(seed_of(scenario, 6, rank), 0,
                                          static_cast<std::uint64_t>(i), 1000));
  return weights;
}

Received fetch(const EngineMemory& memory, const Delivery& delivery) {
  const auto copy = [&](const TensorView& view) {
    return view.is_given() ? memory.fetch(view) : HostTensor();
  };
  Received received;
  received.tokens = copy(delivery.tokens());
  received.scales = copy(delivery.scales());
  received.topk_idx = copy(delivery.topk_idx());
  received.topk_weights = copy(delivery.topk_weights());
  received.row_source = copy(delivery.row_source());
  received.row_expert = copy(delivery.row_expert());
  received.num_rows = copy(delivery.num_rows());
  received.expert_counts = copy(delivery.expert_counts());
  received.aligned_expert_counts = copy(delivery.aligned_expert_counts());
  received.expert_offsets = copy(delivery.expert_offsets());
  received.source_offsets = copy(delivery.source_offsets());
  return received;
}

RankUnderTest::RankUnderTest(const Group& group,
                             const EngineUnderTest& engine,
                             const Scenario& scenario)
    : engine_(engine),
      scenario_(scenario),
      rank_(group.rank()),
      memory_(engine.make_memory(rank_)),
      exchange_(group, config_of(scenario, engine, rank_)) {}

Route RankUnderTest::route(const Scenario* scenario) {
  const Scenario& use = scenario != nullptr ? *scenario : scenario_;
  return exchange_.route(memory_->place(topk_of(use, rank_)),
                         {.layout = use.layout, .sizing = engine_.sizing, .timeout = {}});
}

DispatchOptions RankUnderTest::dispatch_options(const Scenario* scenario) {
  const Scenario& use = scenario != nullptr ? *scenario : scenario_;
  DispatchOptions options;
  if (use.has_weights) options.topk_weights = memory_->place(weights_of(use, rank_));
  if (use.num_scales > 0) options.scales = memory_->place(scales_of(use, rank_));
  options.quantize = use.quantize;
  options.scale_layout = use.scale_layout;
  options.gaps = use.gaps;
  options.scale_by_weights = use.scale_by_weights;
  return options;
}

Delivery RankUnderTest::dispatch(const Route& route, const Scenario* scenario) {
  const Scenario& use = scenario != nullptr ? *scenario : scenario_;
  return exchange_.dispatch(route, memory_->place(tokens_of(use, rank_)), dispatch_options(&use));
}

RankUnderTest::CombineCall RankUnderTest::combine_call(const Delivery& delivery,
                                                       const Scenario* scenario) {
  const Scenario& use = scenario != nullptr ? *scenario : scenario_;
  const TensorView tokens = delivery.tokens();
  std::vector<std::int64_t> shape(tokens.shape, tokens.shape + tokens.num_dims);
  shape.back() = use.hidden;
  const std::int64_t num_tokens = use.routing.num_tokens(rank_);

  CombineCall call;
  const HostTensor y = rows_of(use, rank_, shape);
  if (use.y_in_arena) {
    call.y = y.view();
    call.y.data =
        exchange_.allocate(std::max<std::int64_t>(static_cast<std::int64_t>(y.bytes().size()), 1));
    call.y.device = engine_.device(rank_);
    memory_->overwrite(call.y, y);
  } else {
    call.y = memory_->place(y);
  }
  HostTensor out(use.sum_dtype, {num_tokens, use.hidden});
  out.fill(std::byte{0xA5});
  call.out = memory_->place(out);
  if (use.is_weighted) call.options.topk_weights = memory_->place(weights_of(use, rank_));
  if (use.num_biases > 0) call.options.bias = memory_->place(bias_of(use, rank_, 0));
  if (use.num_biases > 1) call.options.second_bias = memory_->place(bias_of(use, rank_, 1));
  if (use.returns_weights) {
    shape.pop_back();
    if (use.layout == Layout::kByRank) shape.push_back(use.routing.top_k);
    call.options.row_weights = memory_->place(row_weights_of(use, rank_, shape));
    HostTensor weights(DType::kFp32, {num_tokens, use.routing.top_k});
    weights.fill(std::byte{0xA5});
    call.options.combined_weights = memory_->place(weights);
  }
  call.options.form = use.form;
  return call;
}

RankUnderTest::Combined RankUnderTest::fetch_combined(const CombineCall& call) const {
  Combined combined;
  combined.out = memory_->fetch(call.out);
  if (call.options.combined_weights.is_given())
    combined.weights = memory_->fetch(call.options.combined_weights);
  return combined;
}

RankUnderTest::Combined RankUnderTest::combine(const Route& route,
                                               const Delivery& delivery,
                                               const Scenario* scenario) {
  const CombineCall call = combine_call(delivery, scenario);
  exchange_.combine(route, call.y, call.out, call.options);
  return fetch_combined(call);
}

support::Outcome RankUnderTest::attempt(const std::function<void()>& call) {
  return support::attempt([&] {
    call();
    memory_->settle();
    exchange_.check();
  });
}

std::vector<RankResult> run(const EngineUnderTest& engine,
                            const Scenario& scenario,
                            const RunOptions& options) {
  std::vector<RankResult> results(at(scenario.routing.num_ranks()));
  support::run_ranks(scenario.routing.num_ranks(), [&](Group group) {
    RankUnderTest rank(group, engine, scenario);
    RankResult& result = results[at(rank.rank())];
    const Route route = rank.route();
    if (engine.sizing == Sizing::kExact) {
      result.route_expert_counts = route.expert_counts();
      result.route_aligned_counts = route.aligned_expert_counts();
      result.route_tokens_from_rank = route.tokens_from_rank();
      result.route_num_recv_rows = route.num_recv_rows();
    }
    const Delivery delivery = rank.dispatch(route);
    result.received = fetch(rank.memory(), delivery);
    if (options.combines) result.combined = rank.combine(route, delivery);
    result.counters = rank.exchange().counters();
  });
  return results;
}

}  // namespace ferry::contract
