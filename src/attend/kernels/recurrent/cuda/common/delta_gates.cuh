// Gates of the delta rule, and the norm of its keys and queries.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda {

struct DeltaGates {
  float log_decay, beta;
};

// rate: exp(a_log) of the value head.
__device__ inline DeltaGates delta_gates(const DeltaParams& params, int token, int key_head, int head,
                                         float rate, float dt_bias) {
  const auto input = [&](const GateRows& rows) {
    return load_element(rows.data,
                        token * rows.token_stride + key_head * rows.head_stride + head % params.ratio,
                        params.element);
  };
  const float x = __fadd_rn(input(params.alpha), dt_bias);
  const float step = x > 20.0f ? x : log1pf(expf(x));
  return {.log_decay = -__fmul_rn(rate, step),
          .beta = __fdiv_rn(params.beta_scale, __fadd_rn(1.0f, expf(-input(params.beta))))};
}

// Factor that normalizes a vector of this sum of squares.
__device__ inline float delta_norm(float squares) { return __frsqrt_rn(__fadd_rn(squares, 1e-6f)); }

}  // namespace attend::kernels::cuda
