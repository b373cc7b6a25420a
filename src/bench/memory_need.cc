#include "bench/memory_need.hpp"

#include <string>

#include "base/checked.hpp"
#include "base/human.hpp"

namespace ferry::bench {

namespace {

constexpr const char* kWhat = "the bytes of the bench";
constexpr std::int64_t kIdBytes = 8;
constexpr std::int64_t kWeightBytes = 4;

std::int64_t multiply(std::int64_t a, std::int64_t b) { return checked_multiply(kWhat, a, b); }
std::int64_t add(std::int64_t a, std::int64_t b) { return checked_add(kWhat, a, b); }

// One delivered row with everything beside it.
std::int64_t delivered_row_bytes(const Batch& batch) {
  const std::int64_t ids = batch.layout == Layout::kByRank
                               ? batch.routing.top_k * (kIdBytes + kWeightBytes)
                               : kIdBytes + kWeightBytes;
  if (batch.quantize == Quantize::kNone) return 2 * batch.hidden + ids;
  const std::int64_t scales = (batch.hidden + 127) / 128 * 4;
  const std::int64_t own_y = 2 * batch.hidden;  // fp8 rows come back as bf16, from other memory
  return batch.hidden + scales + own_y + ids;
}

}  // namespace

BenchMemory plan_inputs(const BenchOptions& options,
                        int num_local_ranks,
                        int num_ranks,
                        std::int64_t num_tokens) {
  const std::int64_t top_k = options.topk.value_or(kDefaultTopk);
  const std::int64_t rows = multiply(num_tokens, 2 * 2 * options.hidden);  // x and out, bf16
  const std::int64_t ids = multiply(num_tokens, top_k * (kIdBytes + kWeightBytes));
  // Every rank knows the routing of all, so that it can check what it gets.
  const std::int64_t table = multiply(multiply(num_tokens, top_k * 4), num_ranks);
  BenchMemory memory;
  memory.num_ranks = num_local_ranks;
  memory.input_bytes = multiply(add(add(rows, ids), table), num_local_ranks);
  return memory;
}

BenchMemory plan_memory(const BenchOptions& options,
                        const Batch& batch,
                        const MemoryNeed& need,
                        int num_local_ranks) {
  BenchMemory memory =
      plan_inputs(options, num_local_ranks, batch.num_ranks(), batch.routing.max_tokens);
  const bool is_counted = options.sizing == Sizing::kExact && batch.layout != Layout::kPadded;
  const std::int64_t worst = multiply(need.delivery_bytes, num_local_ranks);
  std::int64_t rows = 0;
  if (is_counted)
    for (const ReceivedLoad& load : count_received(batch.routing))
      rows += batch.layout == Layout::kByRank ? load.num_tokens : load.num_selections;
  // Where the ranks are spread over hosts, this one has its share.
  const std::int64_t share = (rows * num_local_ranks + batch.num_ranks() - 1) / batch.num_ranks();
  memory.delivery_bytes = is_counted ? multiply(share, delivered_row_bytes(batch)) : worst;
  if (is_cuda(options)) {
    if (!options.is_checked) memory.delivery_bytes = 0;
    return memory;
  }
  const bool is_staged = options.combine == CombineForm::kPush || options.mode == Mode::kLowLatency;
  memory.exchange_bytes =
      multiply(add(need.control_bytes, is_staged ? need.staging_bytes : 0), num_local_ranks);
  return memory;
}

void check_memory(const BenchMemory& need, const memory::Availability& availability) {
  const std::int64_t total = add(add(need.input_bytes, need.delivery_bytes), need.exchange_bytes);
  const std::string parts =
      need.delivery_bytes == 0
          ? "inputs and results alone"
          : fmt::format("inputs and results {}, deliveries {}, exchange {}",
                        human_bytes(need.input_bytes), human_bytes(need.delivery_bytes),
                        human_bytes(need.exchange_bytes));
  FERRY_CHECK(total <= availability.available_bytes, ErrorCode::kNoResource,
              "{} ranks need {} ({} bytes: {}), but {}; try: fewer --ranks or --tokens",
              need.num_ranks, human_bytes(total), total, parts, memory::describe(availability));
}

}  // namespace ferry::bench
