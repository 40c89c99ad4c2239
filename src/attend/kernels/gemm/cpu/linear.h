// Dense layers on the CPU. Weights are converted to f32 as they are read, or split into bf16 parts for AMX
// tiles (linear_tiles.h); products and sums are f32.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cpu {

// Arguments as kernels::linear checks them. A row's bits depend on its own values, and on the algorithm,
// which the number of rows chooses unless args.batch_invariant; not on the number of threads.
//
// records: the choice of the kernel is (kernel_choices.h); else the caller's is, of which this is a part.
void linear(const LinearArgs& args, Isa isa, bool records = true);

// As kernels::linear_workspace_bytes, for one instruction set.
size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, Isa isa);

// Dense layers of heads on the CPU.

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
