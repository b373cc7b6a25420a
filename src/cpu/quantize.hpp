#pragma once

#include <cstdint>

#include "ferry/exchange.hpp"

namespace ferry::cpu {

// One bf16 row to fp8 e4m3 and its scales (docs/architecture.md, Numbers): per 128 channels, amax
// over finite values and at least 1e-4; kFp8: scale = 448/amax, stored inverse = amax * (1.0f/448);
// kFp8Ue8m0: e = ceil(log2(amax/448)), stored byte = exponent of 2^e. Saturating to finite, nearest
// even; NaN becomes 0x7F with no effect on its neighbours, Inf becomes +-448.
void quantize_row(Quantize quantize,
                  const std::uint16_t* row_bf16,
                  std::int64_t hidden,
                  std::uint8_t* out,
                  void* out_scales) noexcept;

}  // namespace ferry::cpu
