// Vectorized parts of sampling for one instruction set.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

struct SamplingKernels {
  // Returns the largest logit, ignoring NaN; -infinity if there is none.
  float (*max)(const float* logits, int64_t n) = nullptr;
  // weights = e^((logits - max) / temperature), for logits up to max, which is finite. The weight of NaN is
  // 0.
  void (*weigh)(const float* logits, float max, float inverse_temperature, float* weights,
                int64_t n) = nullptr;
};

// One implementation per instruction set.
SamplingKernels sampling_kernels_portable();
SamplingKernels sampling_kernels_avx2();
SamplingKernels sampling_kernels_avx512();

SamplingKernels sampling_kernels(Isa isa);

}  // namespace attend::kernels::cpu
