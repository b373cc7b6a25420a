// Runs every suite on the CUDA engine, ranks as threads; skipped where there is no GPU.

#include "contract/suites.hpp"
#include "gpu/cuda_engine.hpp"

namespace ferry::contract {
namespace {

std::string name_of(const ::testing::TestParamInfo<EngineUnderTest>& info) {
  return info.param.name;
}

}  // namespace

#define FERRY_ON_CUDA(Suite) \
  INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ::testing::ValuesIn(cuda_engines()), name_of)

FERRY_ON_CUDA(DispatchContract);
FERRY_ON_CUDA(DispatchValuesContract);
FERRY_ON_CUDA(OutputsContract);
FERRY_ON_CUDA(CombineContract);
FERRY_ON_CUDA(CombineNumbersContract);
FERRY_ON_CUDA(CombineWeightsContract);
FERRY_ON_CUDA(RouteContract);
FERRY_ON_CUDA(ReuseContract);
FERRY_ON_CUDA(SplitContract);
FERRY_ON_CUDA(SequenceContract);
FERRY_ON_CUDA(LimitsContract);
FERRY_ON_CUDA(OwnerMapContract);
FERRY_ON_CUDA(ArenaContract);
FERRY_ON_CUDA(CountersContract);
FERRY_ON_CUDA(BadInputContract);
FERRY_ON_CUDA(ConfigContract);
FERRY_ON_CUDA(EdgeCases);
FERRY_ON_CUDA(FieldCases);
FERRY_ON_CUDA(ShapeGrid);
FERRY_ON_CUDA(Stress);

}  // namespace ferry::contract
