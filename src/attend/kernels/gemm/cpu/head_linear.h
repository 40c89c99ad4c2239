// Dense layers of heads on the CPU.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/head_linear.h"

namespace attend::kernels::cpu {

// Arguments as kernels::head_linear checks them.
void head_linear(const HeadLinearArgs& args, Isa isa);

// Some tokens of one head, whose weight is read transposed: out[t] = sum over i of x[t, i] weight[i], in the
// order of i, so a token's bits do not depend on the others.
struct TransposedProduct {
  const float* x;
  int64_t x_stride;
  const void* weight;  // [in_features, out_features], of `dtype`
  int64_t weight_stride;
  DType dtype;
  float* out;
  int64_t out_stride;
  int64_t num_tokens, in_features, out_features;
};
using MultiplyTransposed = void (*)(const TransposedProduct& product);

// Compiled for each instruction set.
MultiplyTransposed multiply_transposed_portable();
MultiplyTransposed multiply_transposed_avx2();
MultiplyTransposed multiply_transposed_avx512();

}  // namespace attend::kernels::cpu
