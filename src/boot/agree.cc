#include "boot/agree.hpp"

#include <string>

namespace ferry::boot {

void throw_together(Store& store,
                    std::string_view step,
                    const std::optional<Error>& failure,
                    std::chrono::milliseconds timeout) {
  const std::string own =
      failure ? fmt::format("{}:{}", static_cast<int>(failure->code()), failure->what())
              : std::string();
  for (const std::string& text : store.all_gather(step, own, timeout)) {
    if (text.empty()) continue;
    const std::size_t colon = text.find(':');
    throw_error(ErrorCode{std::stoi(text.substr(0, colon))}, text.substr(colon + 1));
  }
}

}  // namespace ferry::boot
