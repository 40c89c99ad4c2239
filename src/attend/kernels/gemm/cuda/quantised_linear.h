// Dense layers with quantised weights on a GPU: two of the candidates of choose.h.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda {

// By the quantised GEMM: W in its own bits for each tile of rows. Inputs that are in another order are
// gathered into the workspace first.
void quantised_linear(const LinearArgs& args, Stream& stream);

// Tile by tile of outputs: elements of the activations' type in the workspace, rounded once to 16 bits as a
// checkpoint in 16 bits would have them, and the product by them as of a plain weight.
void widened_linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
