// Gated dense layers of 65 to 256 rows with TMA and wgmma, on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm_shape.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidate kGatedMlp of choose.h takes: out = silu(gate) * up, [gate | up] = x weight^T (+
// bias). A row's bits depend neither on the other rows nor on their number. There is no norm, and nothing is
// added to `out`.
void gated_mlp_gemm(const LinearArgs& args, Stream& stream);
// The same, shared as the caller says. Throws Error(kInvalidArgument) for a height that there is no kernel
// for.
void gated_mlp_gemm(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
