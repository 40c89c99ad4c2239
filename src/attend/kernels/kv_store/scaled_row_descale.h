// How numbers of a scaled row are scaled, on either device.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// What numbers of up to `largest` are divided by when they are stored in e4m3: a power of two, as FlashMLA's
// quantizer has it, so that a bfloat16 holds what is read back.
ATTEND_HOST_DEVICE inline float scaled_row_descale(float largest) {
  constexpr float kLargestE4M3 = 448.0f, kLeast = 1e-4f;
  const float least = fmaxf(largest / kLargestE4M3, kLeast);
  // Rounded up to a power of two: a mantissa that is not 0 carries into the exponent.
  uint32_t bits;
  memcpy(&bits, &least, sizeof bits);
  bits = (bits + 0x7fffffu) & 0x7f800000u;
  float descale;
  memcpy(&descale, &bits, sizeof descale);
  return descale;
}

}  // namespace attend::kernels
