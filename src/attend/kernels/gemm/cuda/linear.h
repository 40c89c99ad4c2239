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

// Dense layers of heads on a GPU. Arguments as kernels::head_linear checks them.

void head_linear(const HeadLinearArgs& args, Stream& stream);

// Dense layers in fp8 on both sides, on a GPU: a candidate of choose.h.

// x is normalized where args.norm says so, rounded to e4m3 by rows, each with a scale of its own, into the
// workspace, so many rows at a time as fit there; then multiplied by the weight's codes as they are. No bias.
void fp8_linear(const LinearArgs& args, Stream& stream);

// The same of weights with scales of blocks (sm90/fp8_block/): x has a scale for each 128 inputs of a
// row.
void fp8_block_linear(const LinearArgs& args, Stream& stream);

// Dense layers with quantized weights on a GPU: two of the candidates of choose.h.

// By the quantized GEMM: W in its own bits for each tile of rows. Inputs that are in another order are
// gathered into the workspace first.
void quantized_linear(const LinearArgs& args, Stream& stream);

// Tile by tile of outputs: elements of the activations' type in the workspace, rounded once to 16 bits as a
// checkpoint in 16 bits would have them, and the product by them as of a plain weight.
void dequantize_then_linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
