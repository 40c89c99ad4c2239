// Gates of the delta rule, and the norm of its keys and queries.
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda {

struct DeltaGates {
  float log_decay, beta;
};

// Logarithm of a decay; rate: exp(a_log) of the value head.
__device__ inline float delta_log_decay(float x, float rate, float lower_bound) {
  if (lower_bound < 0.0f) return __fdiv_rn(lower_bound, __fadd_rn(1.0f, expf(-__fmul_rn(rate, x))));
  return -__fmul_rn(rate, x > 20.0f ? x : log1pf(expf(x)));
}

// Gates of a token, from inputs of type T. With decays per channel, log_decay is 0.
template <class T>
__device__ inline DeltaGates delta_gates(const DeltaParams& params, int token, int key_head, int head,
                                         float rate) {
  const auto input = [&](const GateRows& rows) {
    return static_cast<float>(static_cast<const T*>(
        rows.data)[token * rows.token_stride + key_head * rows.head_stride + head % params.ratio]);
  };
  DeltaGates gates;
  gates.log_decay =
      params.decays_per_channel
          ? 0.0f
          : delta_log_decay(__fadd_rn(input(params.alpha), params.dt_bias[head]), rate, params.lower_bound);
  gates.beta = __fdiv_rn(params.beta_scale, __fadd_rn(1.0f, expf(-input(params.beta))));
  return gates;
}

// Factor that normalizes a vector of this sum of squares. An exact root needs as many instructions as the
// sum.
__device__ inline float delta_norm(float squares) { return rsqrtf(__fadd_rn(squares, 1e-6f)); }

}  // namespace attend::kernels::cuda
