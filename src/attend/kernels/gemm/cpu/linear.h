// Dense layers on the CPU. Weights are converted to f32 as they are read, or split into bf16 parts for AMX
// tiles (linear_tiles.h); products and sums are f32.
#pragma once

#include <span>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cpu {

// Arguments are those checked by kernels::linear. The bits of a row depend on its values and on the
// algorithm, but not on the number of threads. The number of rows selects the algorithm unless
// args.batch_invariant is set.
//
// records: if true, records the kernel choice (kernel_choices.h). Callers that use this product as a part of
// their own kernel pass false.
void linear(const LinearArgs& args, Isa isa, bool records = true);

// Several products of the same rows, in one job of the thread team if possible.
void linear(std::span<const LinearArgs> products, Isa isa, bool records = true);

// Like kernels::linear_workspace_bytes, for one instruction set.
size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, Isa isa,
                              WeightFormat format = WeightFormat::kPlain);

// Per-head linear layers on the CPU.

// Arguments are those checked by kernels::head_linear.
void head_linear(const HeadLinearArgs& args, Isa isa);

// Tokens of one head, multiplied by the transposed weight: out[t] = sum over i of x[t, i] * weight[i]. Inputs
// are summed in the order of i, so a token's bits do not depend on other tokens.
struct TransposedProduct {
  const float* x;
  int64_t x_stride;
  const void* weight;  // [in_features, out_features] in `dtype`
  int64_t weight_stride;
  DType dtype;
  float* out;
  int64_t out_stride;
  int64_t num_tokens, in_features, out_features;
  const int32_t* x_rows = nullptr;  // [num_tokens]: row of x of each token; null: 0, 1, ...
};
using MultiplyTransposed = void (*)(const TransposedProduct& product);

MultiplyTransposed multiply_transposed(Isa isa);

// One implementation per instruction set.
MultiplyTransposed multiply_transposed_portable();
MultiplyTransposed multiply_transposed_avx2();
MultiplyTransposed multiply_transposed_avx512();

}  // namespace attend::kernels::cpu
