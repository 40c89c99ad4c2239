// Dense layers of more rows than the skinny GEMM takes, with TMA and wgmma on GPUs of compute capability 9.0,
// bit for bit as the skinny GEMM sums them (skinny_gemm_kernel.h).
#pragma once

#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm_shape.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidate kInvariantSm90 of choose.h takes: out = x weight^T (+ bias) (+ out), or `gated`
// silu(gate) * up of its two halves. A row's bits depend neither on the other rows nor on their number. There
// is no norm.
void batch_invariant_gemm(const LinearArgs& args, bool gated, Stream& stream);
// The same, shared as the caller says. Throws Error(kInvalidArgument) for a tile that there is no kernel for.
void batch_invariant_gemm(const LinearArgs& args, bool gated, const BatchInvariantGemmShape& shape,
                          Stream& stream);

}  // namespace attend::kernels::cuda::sm90
