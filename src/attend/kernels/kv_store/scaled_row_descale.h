// Scaling of the values of a scaled row, for host and device.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// Returns the divisor for e4m3 storage of values of magnitude up to `largest`: a power of two, as in
// FlashMLA's quantizer, so that dequantized values are exact in bfloat16.
ATTEND_HOST_DEVICE inline float scaled_row_descale(float largest) {
  constexpr float kLargestE4M3 = 448.0f, kLeast = 1e-4f;
  const float least = fmaxf(largest / kLargestE4M3, kLeast);
  // Rounds up to a power of two: a non-zero mantissa carries into the exponent.
  uint32_t bits;
  memcpy(&bits, &least, sizeof bits);
  bits = (bits + 0x7fffffu) & 0x7f800000u;
  float descale;
  memcpy(&descale, &bits, sizeof descale);
  return descale;
}

}  // namespace attend::kernels
