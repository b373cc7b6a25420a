#include <gtest/gtest.h>

#include "ops/verify/verify.hpp"

namespace ferry::ops {
namespace {

Facts with_gpus(const std::string& name) {
  Facts facts;
  std::vector<GpuFacts> gpus(8);
  for (GpuFacts& gpu : gpus) gpu.name = name;
  facts.gpus = gpus;
  return facts;
}

Facts with_counters(std::int64_t first, std::int64_t second) {
  Facts facts;
  std::vector<HcaFacts> hcas(2);
  hcas[0].name = "mlx5_0";
  hcas[1].name = "mlx5_1";
  for (HcaFacts& hca : hcas) hca.ports.resize(1);
  hcas[0].ports[0].counters["port_xmit_data"] = first;
  hcas[1].ports[0].counters["port_xmit_data"] = second;
  facts.hcas = hcas;
  return facts;
}

constexpr const char* kSlow = "[tuning] Best dispatch (FP8): SMs 24, 6.50 GB/s (RDMA)\n";

TEST(JudgeFigures, ComparesWithThePublishedOnTheSameGpusOnly) {
  const Finding same = judge_figures(kSlow, 2, with_gpus("NVIDIA B200")).at(0);
  const Finding other = judge_figures(kSlow, 2, with_gpus("NVIDIA H200")).at(0);

  EXPECT_EQ(same.verdict, Verdict::kWarn);
  EXPECT_EQ(same.seen, "6.5 GB/s; published on 8 x B200, 2 nodes: 70-71, on GKE 68.7");
  EXPECT_EQ(other.verdict, Verdict::kOk);
  EXPECT_EQ(other.seen,
            "6.5 GB/s; published on 8 x B200, 2 nodes: 70-71, on GKE 68.7; this is 8 x NVIDIA "
            "H200, so the two "
            "do not compare");
}

TEST(JudgeFigures, FailsOnAnOutputWithoutAny) {
  EXPECT_EQ(judge_figures("Traceback\n", 1, Facts()).at(0).verdict, Verdict::kFail);
}

TEST(JudgeCounters, WantsEveryNicToMove) {
  EXPECT_EQ(judge_counters(with_counters(1, 1), with_counters(9, 9)).verdict, Verdict::kOk);
  const Finding one = judge_counters(with_counters(1, 1), with_counters(9, 1));
  EXPECT_EQ(one.verdict, Verdict::kFail);
  EXPECT_EQ(one.seen, "moved: mlx5_0; still: mlx5_1");
  EXPECT_EQ(judge_counters(Facts(), Facts()).verdict, Verdict::kNotApplicable);
}

TEST(JudgeNvshmemInfo, TellsCompiledInFromLeftOut) {
  EXPECT_EQ(judge_nvshmem_info("NVSHMEM_IBGDA_SUPPORT=ON\n").verdict, Verdict::kOk);
  EXPECT_EQ(judge_nvshmem_info("NVSHMEM_IBGDA_SUPPORT=OFF\n").verdict, Verdict::kFail);
  EXPECT_EQ(judge_nvshmem_info("NVSHMEM v3.5.19\n").verdict, Verdict::kUnknown);
}

}  // namespace
}  // namespace ferry::ops
