// RoPE rotation of a pair of elements, for host and device.
#pragma once

#include <cmath>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

struct RotatedPair {
  float first, second;
};

// Returns the complex product (first + i second) (cos + i sin). Fixes which products are rounded, those with
// the sine, so that every kernel has the same bits.
ATTEND_HOST_DEVICE inline RotatedPair rotate(float first, float second, float cos, float sin) {
  return {fmaf(first, cos, -(second * sin)), fmaf(second, cos, first * sin)};
}

}  // namespace attend::kernels
