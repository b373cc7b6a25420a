#include "engine/operation.hpp"

#include <algorithm>
#include <cstring>

namespace ferry::engine {

std::int64_t num_scales(Quantize quantize, std::int64_t hidden) noexcept {
  switch (quantize) {
    case Quantize::kNone: return 0;
    case Quantize::kFp8: return (hidden + kQuantizeGroup - 1) / kQuantizeGroup;
    case Quantize::kFp8Ue8m0: return (hidden + 4 * kQuantizeGroup - 1) / (4 * kQuantizeGroup);
  }
  return 0;
}

void set_error(layout::OperationWords& words, const std::optional<Error>& error) {
  if (!error) return;
  words.error_code = static_cast<std::int32_t>(error->code());
  const std::size_t length =
      std::min<std::size_t>(std::strlen(error->what()), layout::OperationWords::kTextBytes - 1);
  std::memcpy(words.error_text, error->what(), length);
  words.error_text[length] = '\0';
}

std::string first_difference(const layout::OperationShape& a, const layout::OperationShape& b) {
  const auto differ = [](const char* name, auto x, auto y) {
    return x == y ? std::string() : fmt::format("{} {} against {}", name, x, y);
  };
  for (const std::string& text : {
           differ("route", a.route, b.route),
           differ("layout", a.layout, b.layout),
           differ("row bytes", a.row_bytes, b.row_bytes),
           differ("dtype", dtype_name(DType{a.dtype}), dtype_name(DType{b.dtype})),
           differ("quantize", a.quantize, b.quantize),
           differ("scale bytes per row", a.scale_bytes, b.scale_bytes),
           differ("scale dtype", a.scale_dtype, b.scale_dtype),
           differ("weights given", a.has_weights, b.has_weights),
           differ("bytes of a topk_idx element", a.topk_idx_bytes, b.topk_idx_bytes),
           differ("combine form", a.form, b.form),
           differ("owner map digest", a.digest, b.digest),
       })
    if (!text.empty()) return text;
  return {};
}

}  // namespace ferry::engine
