// Dense layers of many rows with TMA and wgmma on GPUs of compute capability 9.0, bit for bit as the
// skinny GEMM sums them (skinny_gemm_kernel.h).
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidate kInvariantSm90 of choose.h takes: out = x weight^T (+ bias) (+ out). A row's bits
// depend neither on the other rows nor on their number. There is no norm.
void batch_invariant_gemm(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
