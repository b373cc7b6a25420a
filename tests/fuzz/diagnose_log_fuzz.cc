// Any bytes as a log: reading, judging and printing end, and what is printed holds no control
// characters.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "ops/diagnose/diagnosis.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  // The patterns are compiled once; the evidence of earlier inputs stays, as that of more logs.
  static auto* evidence = new ferry::ops::Evidence;
  std::istringstream stream(std::string(reinterpret_cast<const char*>(bytes), num_bytes));
  evidence->read(stream, "fuzz.log");
  const auto diagnosis = ferry::ops::diagnose(ferry::ops::Clues(*evidence, nullptr));
  for (const char byte : ferry::ops::format_diagnosis(diagnosis, false))
    if (byte != '\n' && (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f)) std::abort();
  return 0;
}
