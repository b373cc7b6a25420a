// Runs every suite on the CPU engine.

#include "contract/cpu_engine.hpp"
#include "contract/suites.hpp"

namespace ferry::contract {
namespace {

std::string name_of(const ::testing::TestParamInfo<EngineUnderTest>& info) {
  return info.param.name;
}

}  // namespace

#define FERRY_ON_CPU(Suite) \
  INSTANTIATE_TEST_SUITE_P(Cpu, Suite, ::testing::ValuesIn(cpu_engines()), name_of)

FERRY_ON_CPU(DispatchContract);
FERRY_ON_CPU(DispatchValuesContract);
FERRY_ON_CPU(OutputsContract);
FERRY_ON_CPU(CombineContract);
FERRY_ON_CPU(CombineNumbersContract);
FERRY_ON_CPU(CombineWeightsContract);
FERRY_ON_CPU(RouteContract);
FERRY_ON_CPU(ReuseContract);
FERRY_ON_CPU(SplitContract);
FERRY_ON_CPU(SequenceContract);
FERRY_ON_CPU(LimitsContract);
FERRY_ON_CPU(OwnerMapContract);
FERRY_ON_CPU(ArenaContract);
FERRY_ON_CPU(CountersContract);
FERRY_ON_CPU(BadInputContract);
FERRY_ON_CPU(ConfigContract);
FERRY_ON_CPU(EdgeCases);
FERRY_ON_CPU(FieldCases);
FERRY_ON_CPU(ShapeGrid);
FERRY_ON_CPU(Stress);

}  // namespace ferry::contract
