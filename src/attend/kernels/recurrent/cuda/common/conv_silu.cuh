// SiLU after the causal convolution.
#pragma once

namespace attend::kernels::cuda {

// Half-precision results do not need an exact exponential.
template <class T>
__device__ __forceinline__ float conv_silu(float x) {
  if constexpr (sizeof(T) == 4) return __fdividef(x, 1.0f + expf(-x));
  return __fdividef(x, 1.0f + __expf(-x));
}

}  // namespace attend::kernels::cuda
