// Scalar functions of gates and of the activation xIELU, for host and device.
#pragma once

#include <cmath>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// log(1 + e^x). Above 20, x has the same float32 value.
ATTEND_HOST_DEVICE inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Constants of xIELU (arXiv 2411.13010) in Apertus.
inline constexpr float kXieluBeta = 0.5f, kXieluEps = -1e-6f;

// `a`, `b`: factors for positive and for other x, after softplus. NaN stays NaN.
ATTEND_HOST_DEVICE inline float xielu_of(float x, float a, float b) {
  const float curve = x > 0.0f ? a * x * x : (expm1f(x < kXieluEps ? x : kXieluEps) - x) * b;
  return curve + kXieluBeta * x;
}

}  // namespace attend::kernels
