// Any text as DEEP_EP_DEVICE_TO_HCA_MAPPING and as CUDA_VISIBLE_DEVICES: an error, or a mapping that
// reads back as itself.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "topo/hca_mapping.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  using namespace ferry::topo;
  const std::string text(reinterpret_cast<const char*>(bytes), num_bytes);
  HcaMapping mapping;
  if (ferry::capture_error([&] { mapping = parse_hca_mapping(text); })) return 0;
  if (parse_hca_mapping(format_hca_mapping(mapping)) != mapping) std::abort();
  for (const auto& [device, hca] : mapping) static_cast<void>(parse_hca_port(hca));
  static_cast<void>(
      ferry::capture_error([&] { static_cast<void>(hca_of_device(mapping, 0, text)); }));
  return 0;
}
