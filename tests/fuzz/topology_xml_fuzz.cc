// Any bytes as an NCCL topology file: refused with an error, or planned for and written again.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "ops/topology/drawing.hpp"
#include "ops/topology/nccl_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  using namespace ferry::ops;
  const std::string text(reinterpret_cast<const char*>(bytes), num_bytes);
  Facts facts;
  const auto error =
      ferry::capture_error([&] { apply_nccl_topology(text, "fuzz.xml", facts); });
  if (error) return 0;
  const NicPlan plan = plan_nics(facts);
  static_cast<void>(format_links(facts, plan) + format_plan(plan));
  static_cast<void>(write_nccl_topology(facts));
  return 0;
}
