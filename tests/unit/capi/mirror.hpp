#pragma once

#include <string>
#include <vector>

namespace ferry::mirror {

// What ferry.h must hold so that everything of the C++ headers is reachable from C, as C names it:
// "ferry_group_rank()", "ferry_route_options.sizing", "FERRY_LAYOUT_PADDED". Reads the text of the
// headers: public functions of classes, free functions, fields of structs, enumerators. Exceptions
// are a table in mirror.cc, each with its reason.
[[nodiscard]] std::vector<std::string> expected_names(const std::string& cpp_headers);

// Those of `names` that the text of ferry.h lacks.
[[nodiscard]] std::vector<std::string> missing_names(const std::vector<std::string>& names,
                                                     const std::string& c_header);

}  // namespace ferry::mirror
