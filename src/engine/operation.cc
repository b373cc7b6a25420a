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

}  // namespace ferry::engine
