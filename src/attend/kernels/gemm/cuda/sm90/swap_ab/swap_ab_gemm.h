// Dense layers with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm_shape.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidate kSwapAbSplitK of choose.h takes: out = x weight^T (+ bias) (+ out); `gated`:
// silu(gate) * up of its two halves. Of quantised weights it takes fp8 and int4 whose scales are of multiples
// of kScaledInputs inputs (swap_ab_gemm_shape.h), or of all. A row's bits depend neither on the other rows
// nor on their number; with args.batch_invariant they are those of the batch-invariant GEMM. A norm of x must
// have been deferred, for bf16; args.x is not read then. The next norm is deferred where out is bf16 and
// aligned as the weight and what is left for it: returns whether.
bool swap_ab_gemm(const LinearArgs& args, bool gated, Stream& stream);
// The same, shared as the caller says.
bool swap_ab_gemm(const LinearArgs& args, bool gated, const SwapAbGemmShape& shape, Stream& stream);

// The same for what the candidate kScaledCodes takes: int4 in groups of kScaledInputs, with scales of the
// type of x, whose products of codes and scales are rounded to that type; and fp8 whose scales are those of
// whole outputs, with which sums are multiplied. No norm is deferred.
void scaled_codes_gemm(const LinearArgs& args, bool gated, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
