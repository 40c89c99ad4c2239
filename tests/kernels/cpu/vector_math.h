// Functions of kernels/common/cpu/simd.h over arrays, compiled for each instruction set.
#pragma once

#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

struct VectorMath {
  void (*exp_nonpositive)(float* x, int n);  // in place; n is a multiple of 16
  void (*tanh)(float* x, int n);
};

VectorMath vector_math_portable();
VectorMath vector_math_avx2();
VectorMath vector_math_avx512();

template <class S, auto kFunction>
void apply(float* x, int n) {
  for (int i = 0; i < n; i += S::kLanes) S::store(x + i, kFunction(S::load(x + i)));
}

}  // namespace attend::kernels::cpu
