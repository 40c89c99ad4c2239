// RoPE's rotation of a pair of elements, on either device.
#pragma once

#include <cmath>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

struct RotatedPair {
  float first, second;
};

// The complex number first + i second times cos + i sin. Which of the products is rounded is said here, so
// that every kernel has the same bits: those with the sine.
ATTEND_HOST_DEVICE inline RotatedPair rotate(float first, float second, float cos, float sin) {
  return {fmaf(first, cos, -(second * sin)), fmaf(second, cos, first * sin)};
}

}  // namespace attend::kernels
