// Any bytes as a file of facts: it is refused with an error, or judged, planned for and printed.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "ops/checks/doctor.hpp"
#include "ops/environment/script.hpp"
#include "ops/facts/facts_json.hpp"
#include "ops/topology/drawing.hpp"
#include "ops/topology/nccl_xml.hpp"

namespace {

void use(const ferry::ops::Facts& facts) {
  using namespace ferry::ops;
  static_cast<void>(format_findings(judge_host(facts, {.is_multi_node = true}), {}));
  static_cast<void>(judge_hosts({facts, facts}, {}));
  static_cast<void>(draw_svg(facts, plan_nics(facts)));
  static_cast<void>(write_nccl_topology(facts));
  static_cast<void>(format_script(plan_environment(facts), facts.host.name));
  const std::string written = print_json(facts_json(facts));
  static_cast<void>(parse_facts(written, "itself"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes), num_bytes);
  ferry::ops::Facts facts;
  const auto error =
      ferry::capture_error([&] { facts = ferry::ops::parse_facts(text, "fuzz.json"); });
  if (!error) use(facts);
  return 0;
}
