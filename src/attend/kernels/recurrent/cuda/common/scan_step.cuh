// Step size and decay of a token of a selective scan.
#pragma once

#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"

namespace attend::kernels::cuda {

template <class T>
__device__ float load_dt(const ScanParams& params, int64_t token, int head) {
  return static_cast<float>(static_cast<const T*>(params.dt)[token * params.dt_stride + head]);
}

// softplus(dt + dt_bias), bounded.
__device__ inline float scan_step(const ScanParams& params, float dt, int head) {
  const float raw = dt + params.dt_bias[head];
  const float step = raw > 20.0f ? raw : log1pf(expf(raw));
  return fminf(fmaxf(step, params.min_step), params.max_step);
}

// Returns the first element of the states of a head in a slot.
__device__ inline float* head_state(const ScanParams& params, int slot, int head) {
  return params.state +
         (static_cast<int64_t>(slot) * params.num_heads + head) * params.head_dim * params.state_dim;
}

}  // namespace attend::kernels::cuda
