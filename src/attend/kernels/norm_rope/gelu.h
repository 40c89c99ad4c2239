// Constants of GELU's tanh form, for host and device.
#pragma once

namespace attend::kernels {

// gelu(x) = x / 2 (1 + tanh(kGeluScale (x + kGeluCubic x^3))) (arXiv 1606.08415, section 2).
inline constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

}  // namespace attend::kernels
