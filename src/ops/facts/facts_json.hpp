#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "ops/facts/facts.hpp"

namespace ferry::ops {

inline constexpr const char* kFactsSchema = "ferry.facts/1";

// A known fact is its value, an absent one null, an unknown one {"unknown": "reason"}.
[[nodiscard]] nlohmann::ordered_json facts_json(const Facts& facts);

// The facts of one host. A field that the text does not have is unknown, a name that this version
// does not know is ignored. Throws kInvalidArgument naming `source` and the field on anything else:
// no JSON, another schema, a value of another type.
[[nodiscard]] Facts parse_facts(std::string_view text, std::string_view source);

// The part that only a running driver can tell (NVML), as trees carry it in ferry/gpus.json: the
// list of GpuFacts alone.
[[nodiscard]] std::vector<GpuFacts> parse_gpu_facts(std::string_view text, std::string_view source);

}  // namespace ferry::ops
