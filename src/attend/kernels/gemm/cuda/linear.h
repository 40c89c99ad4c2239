// Dense layers on a GPU. As linear() of linear.h, which checks shapes and calls this.
#pragma once

#include "attend/kernels/gemm/cuda/choose.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda {

// Throws Error(kUnsupported) for a weight of another dtype than x.
bool linear(const LinearArgs& args, Stream& stream);
// Returns false, having done nothing, when no kernel takes gate, up and SiLU together.
bool gated_linear(const GatedLinearArgs& args, Stream& stream);

// What choose() sees of arguments that are checked and not empty. `gated`: out is silu(gate) * up.
GemmProblem gemm_problem(const LinearArgs& args, bool gated);

}  // namespace attend::kernels::cuda
