#include "ops/facts/gather.hpp"

namespace ferry::ops {

Facts gather_facts(const Root& root) {
  Facts facts;
  gathering::gather_host(root, facts);
  gathering::gather_process(root, facts);
  gathering::gather_driver(root, facts);
  gathering::gather_gpus(root, facts);
  gathering::gather_hcas(root, facts);
  gathering::gather_interfaces(root, facts);
  gathering::gather_pci(root, facts);
  gathering::gather_toolchain(root, facts);
  gathering::gather_python(root, facts);
  gathering::gather_libraries(root, facts);
  return facts;
}

}  // namespace ferry::ops
