// Linear layers on a GPU. Called by linear() of kernels/gemm/linear.h, which checks shapes.
#pragma once

#include "attend/kernels/gemm/cuda/choose.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda {

// Returns true if the next norm is deferred. Throws Error(kUnsupported) for a weight with another dtype than
// x.
bool linear(const LinearArgs& args, Stream& stream);
// Returns false without launching if no kernel fuses gate, up and SiLU.
bool gated_linear(const GatedLinearArgs& args, Stream& stream);

// Problem for choose(), from checked, non-empty arguments. `gated`: out is silu(gate) * up.
GemmProblem gemm_problem(const LinearArgs& args, bool gated);

// Per-head linear layers on a GPU. Arguments are those checked by kernels::head_linear.

void head_linear(const HeadLinearArgs& args, Stream& stream);

// fp8 x fp8 linear layers on a GPU: a candidate of choose.h.

// Applies args.norm to x if set, and rounds x to e4m3 in the workspace with one scale per row. Then
// multiplies by the weight's quantized values. Rows are processed in chunks that fit into the workspace. Bias
// is not supported.
void fp8_linear(const LinearArgs& args, Stream& stream);

// Like fp8_linear, for weights with block scales (sm90/fp8_block/): x has a scale per 128 inputs of a row.
void fp8_block_linear(const LinearArgs& args, Stream& stream);

// Linear layers with quantized weights on a GPU: two of the candidates of choose.h.

// Quantized GEMM: each tile of rows reads the quantized W. If W has an input order, inputs are gathered into
// the workspace first.
void quantized_linear(const LinearArgs& args, Stream& stream);

// Dequantizes tiles of outputs to the activations' dtype in the workspace, rounded once to 16 bits like a
// 16-bit checkpoint, and multiplies by them like a plain weight.
void dequantize_then_linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
