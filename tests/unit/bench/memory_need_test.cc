#include "bench/memory_need.hpp"

#include <gtest/gtest.h>

#include "ferry/error.hpp"
#include "result_fixture.hpp"

namespace ferry::bench {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

memory::Availability available(std::int64_t bytes) {
  memory::Availability availability;
  availability.available_bytes = bytes;
  availability.machine_available_bytes = bytes;
  return availability;
}

TEST(PlanMemory, CountsDeliveredRowsAlongTheRouting) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.hidden = 256;
  options.topk = 2;

  const BenchMemory memory = plan_memory(options, batch, {.control_bytes = 100}, 2);

  // x and out: 2 ranks of 3 tokens of 512 bytes; ids and weights 24 bytes a token; the table of
  // both.
  EXPECT_EQ(memory.input_bytes, 2 * (3 * (2 * 512 + 24) + 3 * 2 * 4 * 2));
  EXPECT_EQ(memory.delivery_bytes, 8 * (512 + 24));
  EXPECT_EQ(memory.exchange_bytes, 200);
}

TEST(PlanMemory, TakesTheWorstCaseWhereThatIsReserved) {
  const Batch batch = small_batch(Layout::kPadded);
  BenchOptions options;
  options.hidden = 256;

  EXPECT_EQ(plan_memory(options, batch, {.delivery_bytes = 1000}, 2).delivery_bytes, 2000);
}

TEST(PlanMemory, AddsStagingWhereRowsAreStaged) {
  const Batch batch = small_batch(Layout::kByRank);
  BenchOptions options;
  options.combine = CombineForm::kPush;

  EXPECT_EQ(plan_memory(options, batch, {.staging_bytes = 500}, 2).exchange_bytes, 1000);
}

TEST(PlanMemory, LeavesTheExchangeToTheGpu) {
  const Batch batch = small_batch(Layout::kPadded);
  BenchOptions options;
  options.engine = "cuda";
  const MemoryNeed need = {.delivery_bytes = 1000, .control_bytes = 100};

  EXPECT_EQ(plan_memory(options, batch, need, 2).exchange_bytes, 0);
  EXPECT_EQ(plan_memory(options, batch, need, 2).delivery_bytes, 0);
  options.is_checked = true;
  EXPECT_EQ(plan_memory(options, batch, need, 2).delivery_bytes, 2000);
}

TEST(PlanInputs, RefusesSizesBeyond64Bits) {
  BenchOptions options;
  options.hidden = 1 << 24;
  try {
    static_cast<void>(plan_inputs(options, 2048, 2048, std::int64_t{1} << 40));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(CheckMemory, NamesNeedAndAvailableMemory) {
  BenchMemory need;
  need.num_ranks = 64;
  need.input_bytes = 2 * kGiB;
  need.delivery_bytes = 5 * kGiB;
  need.exchange_bytes = kGiB;
  try {
    check_memory(need, available(4 * kGiB));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoResource);
    EXPECT_EQ(std::string(error.what()),
              "64 ranks need 8.00 GiB (8589934592 bytes: inputs and results 2.00 GiB, deliveries "
              "5.00 GiB, exchange 1.00 GiB), but " +
                  memory::describe(available(4 * kGiB)) + "; try: fewer --ranks or --tokens");
  }
}

TEST(CheckMemory, AcceptsWhatFits) { EXPECT_NO_THROW(check_memory({}, available(0))); }

}  // namespace
}  // namespace ferry::bench
